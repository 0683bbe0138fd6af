-- Locks running jobs whose lease ran out, in id order. Called by PostgreSQLEngine.expired, inside a transaction.
-- `+ 0` keeps the planner from the key's index, which it would walk from end to end where it takes most jobs to be running.
SELECT id, token, locked_by, type, COALESCE(extract(epoch FROM clock_timestamp() - last_started_at), 0)::float8
  FROM django_jobs_job
 WHERE status = 'running' AND locked_until < clock_timestamp()
 ORDER BY id + 0
 LIMIT %(limit)s
   FOR UPDATE SKIP LOCKED
