-- Ends a batch of runs in any way but done, each fenced. Called by PostgreSQLEngine.settle, which gives them in id order.
-- Rows are locked in id order first, one look at the key's index each; see complete.sql. A witnessed death, a second loss in
-- a row that may be the job's doing, and each of the last losses that it is allowed make it a suspect, to be run alone. The
-- witnessed death of a process that ran a suspect, and so nothing else, convicts it when it has caused two losses; too many
-- losses in a row end it as well. What says nothing of the job, such as being stopped, changes nothing; an end by itself
-- clears it. What a person cancelled while it ran does not run again, however this run ended.
-- What was decided is found for each row by its place among the ids (width_bucket is a binary search): as a join, 500 rows
-- took 187 us each, and so 51.
WITH ended AS MATERIALIZED (
    SELECT *
      FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(holders)s::text[], %(statuses)s::text[],
                  %(counts)s::text[], %(delays)s::float8[], %(witnessed)s::bool[], %(suspicious)s::bool[],
                  %(errors)s::text[], %(entries)s::text[])
               AS given(id, token, locked_by, status, counts, delay, witnessed, suspicious, error, entry)
), judged AS MATERIALIZED (
    SELECT job.id, ended.status, ended.counts, ended.delay, ended.error, ended.entry, job.cancelled, job.attempts, job.losses,
           ended.counts = 'loss' AND job.losses + 1 >= %(max_uncounted)s AS lost_too_often,
           ended.counts = 'loss' AND ended.witnessed AND job.suspect AND job.losses > 0 AS convicted,
           CASE ended.counts
                WHEN 'loss' THEN job.suspect OR ended.witnessed OR (ended.suspicious AND job.losses > 0)
                                 OR job.losses + 1 >= %(max_uncounted)s - %(last_alone)s
                WHEN 'nothing' THEN job.suspect ELSE false END AS suspect
      FROM ended CROSS JOIN LATERAL (
        SELECT id, cancel_reason IS NOT NULL AS cancelled, attempts, losses, suspect
          FROM django_jobs_job
         WHERE id = ended.id AND token = ended.token AND locked_by IS NOT DISTINCT FROM ended.locked_by
           FOR UPDATE
      ) job
), decided AS MATERIALIZED (
    SELECT id, suspect, entry,
           CASE WHEN cancelled THEN 'cancelled' WHEN lost_too_often OR convicted THEN 'dead' ELSE status END AS status,
           delay * CASE counts WHEN 'loss' THEN 2 ^ least(losses, 3) ELSE 1 END AS delay,
           attempts + (counts = 'attempt')::int AS attempts,
           CASE counts WHEN 'loss' THEN losses + 1 WHEN 'nothing' THEN losses ELSE 0 END AS losses,
           CASE WHEN convicted THEN format('%%s It ran alone, and was lost %%s times in a row.', error, losses + 1)
                WHEN lost_too_often THEN format('Lost %%s times in a row, never seen to end. %%s', losses + 1, error)
                ELSE error END AS error
      FROM judged
), ordered AS MATERIALIZED (
    SELECT array_agg(id ORDER BY id) AS ids, array_agg(status ORDER BY id) AS statuses,
           array_agg(delay ORDER BY id) AS delays, array_agg(attempts ORDER BY id) AS attempts,
           array_agg(losses ORDER BY id) AS losses, array_agg(suspect ORDER BY id) AS suspects,
           array_agg(error ORDER BY id) AS errors, array_agg(entry ORDER BY id) AS entries
      FROM decided
)
UPDATE django_jobs_job job
   SET status = ordered.statuses[width_bucket(id, ids)],
       run_at = COALESCE(clock_timestamp() + ordered.delays[width_bucket(id, ids)] * interval '1 second', run_at),
       attempts = ordered.attempts[width_bucket(id, ids)],
       losses = ordered.losses[width_bucket(id, ids)],
       suspect = ordered.suspects[width_bucket(id, ids)],
       parked = CASE WHEN ordered.suspects[width_bucket(id, ids)] AND ordered.statuses[width_bucket(id, ids)] = 'ready'
                     THEN 'suspect' END,
       last_error = COALESCE(ordered.errors[width_bucket(id, ids)], last_error),
       history = CASE WHEN ordered.entries[width_bucket(id, ids)] IS NULL THEN history
                      ELSE (CASE WHEN jsonb_array_length(history) >= 10 THEN history - 1 ELSE history END)
                           || jsonb_build_array(ordered.entries[width_bucket(id, ids)]::jsonb || jsonb_build_object('at',
                              to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'))) END,
       locked_by = NULL, locked_until = NULL,
       idempotency_key = CASE WHEN ordered.statuses[width_bucket(id, ids)] = 'ready' OR key_holds = 'window'
                              THEN idempotency_key END,
       finished_at = CASE WHEN ordered.statuses[width_bucket(id, ids)] <> 'ready' THEN clock_timestamp() END
  FROM ordered
 WHERE id = ANY (ARRAY(SELECT id FROM decided)) AND locked_by IS NOT NULL
RETURNING id, status
