DROP INDEX noised_sum_by_release;
ALTER TABLE noised_sum DROP COLUMN coordinator;
