-- Cancels waiting jobs whose time to be started is over, also those that no claim meets: parked, or of a queue that is
-- paused or not served. Called by PostgreSQLEngine.cancel_expired. What a claim meets first, its worker cancels.
WITH held AS MATERIALIZED (
    SELECT id
      FROM django_jobs_job
     WHERE status = 'ready' AND expires_at IS NOT NULL AND expires_at <= statement_timestamp()
     ORDER BY expires_at
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED
)
UPDATE django_jobs_job
   SET status = 'cancelled', parked = NULL, finished_at = clock_timestamp(), last_error = %(error)s,
       idempotency_key = CASE WHEN key_holds = 'window' THEN idempotency_key END,
       history = (CASE WHEN jsonb_array_length(history) >= 10 THEN history - 1 ELSE history END)
                 || jsonb_build_array(%(entry)s::jsonb || jsonb_build_object('run', token, 'at',
                    to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')))
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND status = 'ready'
RETURNING id
