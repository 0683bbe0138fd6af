-- Tells in how many seconds the next suspects are due that claim_suspect.sql could take. Called by
-- PostgreSQLEngine.suspects_due, by each supervisor at every heartbeat and when it has met a suspect.
SELECT greatest(extract(epoch FROM run_at - statement_timestamp()), 0)::float8
  FROM django_jobs_job
 WHERE parked = 'suspect'
   AND type = ANY (%(types)s::text[])
   AND (%(queues)s::text[] IS NULL OR queue = ANY (%(queues)s::text[]))
   AND NOT EXISTS (SELECT 1
                     FROM django_jobs_pause pause
                    WHERE (until IS NULL OR until > statement_timestamp())
                      AND pause.name = CASE kind WHEN 'queue' THEN queue ELSE type END)
 ORDER BY run_at, id
 LIMIT %(limit)s
