-- Extends the leases of runs that live, expired ones too while the token is still the row's. Called by
-- PostgreSQLEngine.extend. Rows that somebody holds are being finished: they are skipped, so this never waits.
-- locked_until is in no index, so the update stays on its page.
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
   SET locked_until = clock_timestamp() + %(lease)s::float8 * interval '1 second'
 WHERE id = ANY (ARRAY(SELECT id FROM held)) AND locked_by IS NOT NULL
RETURNING id, cancel_reason IS NOT NULL
