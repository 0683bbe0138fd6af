-- Stores what running handlers reported, each fenced. Called by PostgreSQLEngine.store_progress.
WITH held AS MATERIALIZED (
    SELECT job.id
      FROM unnest(%(ids)s::bigint[], %(tokens)s::bigint[], %(holders)s::text[]) AS given(id, token, locked_by)
     CROSS JOIN LATERAL (
        SELECT id
          FROM django_jobs_job
         WHERE id = given.id AND token = given.token AND locked_by IS NOT DISTINCT FROM given.locked_by
           FOR UPDATE SKIP LOCKED
      ) job
)
UPDATE django_jobs_job
   SET progress = (SELECT %(reports)s::jsonb) -> (id || ':' || token)
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND locked_by IS NOT NULL
