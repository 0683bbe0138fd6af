-- Takes a batch of jobs that ended long enough ago out of the table of jobs, in the order of their ids, and puts them into
-- the archive if they are to be kept. Called by PostgreSQLArchive.move.
-- State and age are part of the reference that locks: they are tested again after a concurrent commit, so a job that is
-- requeued meanwhile stays. Rows that somebody holds are passed over.
--
-- What is old is found by walking along the ids, not by an index on finished_at, which every job would pay for. Measured
-- (PostgreSQL 15, two cores, medians of three interleaved rounds): from its claim to its end a job wrote 936 bytes of
-- WAL; with a partial btree 1,002, and 0.6 us of the server more; with BRIN 943, but a session of ours scans no bitmaps.
-- A moved row costs 6 us and 477 bytes, however it is found. Behind 50,000 rows deleted under an old snapshot the index
-- took 9.4 us a row, unless it was read from a low-water mark; the walk has one by itself.
-- Without FOR UPDATE SKIP LOCKED it would be 5.4 us and 420 bytes, and one row in other hands would hold up all others.
WITH held AS MATERIALIZED (
    SELECT id
      FROM django_jobs_job
     WHERE id > %(after)s AND id <= %(upto)s
       AND (status IN ('done', 'cancelled') AND finished_at < statement_timestamp() - %(done)s
            OR status IN ('failed', 'dead') AND finished_at < statement_timestamp() - %(dead)s)
       AND (idempotency_key IS NULL OR finished_at < statement_timestamp() - %(keyed)s)
     ORDER BY id
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM django_jobs_job
     WHERE id = ANY (ARRAY(SELECT id FROM held))
    RETURNING id, type, queue, priority, payload, idempotency_key, key_holds, status, run_at, expires_at, timeout,
              attempts, max_attempts, losses, suspect, token, cancel_reason, last_error, history, progress, result, meta,
              schedule, slot, created_at, started_at, last_started_at, finished_at
), kept AS (
    INSERT INTO django_jobs_archivedjob
           (id, type, queue, priority, payload, idempotency_key, key_holds, status, run_at, expires_at, timeout,
            attempts, max_attempts, losses, suspect, token, cancel_reason, last_error, history, progress, result, meta,
            schedule, slot, created_at, started_at, last_started_at, finished_at, archived_at)
    SELECT gone.*, statement_timestamp()
      FROM gone
     WHERE %(keep)s
)
-- Whether what comes next was made too lately to have ended long ago: of the rows as they were before.
SELECT (SELECT count(*) FROM gone), (SELECT max(id) FROM gone),
       (SELECT created_at > statement_timestamp() - least(%(done)s, %(dead)s)
          FROM django_jobs_job
         WHERE id > %(after)s AND id <= %(upto)s
         ORDER BY id DESC
         LIMIT 1)
