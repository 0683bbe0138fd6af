-- Ends a batch of runs in any way but done, each fenced. Called by PostgreSQLEngine.settle.
-- Rows are locked in id order first. A witnessed death, a second loss in a row that may be the job's doing, and each of the
-- last losses that it is allowed make it a suspect, to be run alone. The witnessed death of a process that ran a
-- suspect, and so nothing else, convicts it when it has caused two losses; too many losses in a row end it as well.
-- What says nothing of the job, such as being stopped, changes nothing; an end by itself clears it.
-- What a person cancelled while it ran does not run again, however this run ended.
WITH ended AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(holders)s::text[], %(statuses)s::text[],
                  %(counts)s::text[], %(delays)s::float8[], %(witnessed)s::bool[], %(suspicious)s::bool[],
                  %(errors)s::text[], %(entries)s::text[])
               AS given(id, token, locked_by, status, counts, delay, witnessed, suspicious, error, entry)
), held AS MATERIALIZED (
    SELECT id
      FROM django_jobs_job
     WHERE id = ANY (%(ids)s::bigint[]) AND status = 'running'
     ORDER BY id
       FOR UPDATE
), decided AS MATERIALIZED (
    SELECT job.id, ended.token, ended.locked_by, ended.counts, ended.delay, ended.witnessed, ended.error,
           ended.entry,
           CASE WHEN job.cancel_reason IS NOT NULL THEN 'cancelled'
                WHEN ended.counts = 'loss'
                 AND (job.losses + 1 >= %(max_uncounted)s
                      OR (ended.witnessed AND job.suspect AND job.losses > 0))
                THEN 'dead' ELSE ended.status END AS status,
           ended.counts = 'loss' AND ended.witnessed AND job.suspect AND job.losses > 0 AS convicted,
           CASE ended.counts
                WHEN 'loss' THEN job.suspect OR ended.witnessed OR (ended.suspicious AND job.losses > 0)
                                 OR job.losses + 1 >= %(max_uncounted)s - %(last_alone)s
                WHEN 'nothing' THEN job.suspect ELSE false END AS suspect
      FROM django_jobs_job job
      JOIN ended ON ended.id = job.id
     WHERE job.id = ANY (ARRAY(SELECT id FROM held))
)
UPDATE django_jobs_job job
   SET status = decided.status,
       run_at = CASE WHEN decided.delay IS NULL THEN job.run_at
                     ELSE clock_timestamp() + decided.delay * interval '1 second'
                          * CASE WHEN decided.counts = 'loss' THEN 2 ^ least(job.losses, 3) ELSE 1 END END,
       attempts = job.attempts + (decided.counts = 'attempt')::int,
       losses = CASE decided.counts WHEN 'loss' THEN job.losses + 1 WHEN 'nothing' THEN job.losses ELSE 0 END,
       suspect = decided.suspect,
       parked = CASE WHEN decided.suspect AND decided.status = 'ready' THEN 'suspect' END,
       last_error = CASE WHEN decided.convicted
                         THEN format('%%s It ran alone, and was lost %%s times in a row.', decided.error, job.losses + 1)
                         WHEN decided.counts = 'loss' AND job.losses + 1 >= %(max_uncounted)s
                         THEN format('Lost %%s times in a row, never seen to end. %%s', job.losses + 1, decided.error)
                         ELSE COALESCE(decided.error, job.last_error) END,
       history = CASE WHEN decided.entry IS NULL THEN job.history
                      ELSE (CASE WHEN jsonb_array_length(job.history) >= 10 THEN job.history - 1 ELSE job.history END)
                           || jsonb_build_array(decided.entry::jsonb || jsonb_build_object('at',
                              to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))) END,
       locked_by = NULL, locked_until = NULL,
       idempotency_key = CASE WHEN decided.status = 'ready' OR job.key_holds = 'window' THEN job.idempotency_key END,
       finished_at = CASE WHEN decided.status = 'ready' THEN NULL ELSE clock_timestamp() END
  FROM decided
 WHERE job.id = decided.id AND job.status = 'running'
   AND job.token = decided.token AND job.locked_by = decided.locked_by
RETURNING job.id, job.status
