ALTER TABLE assignment DROP COLUMN cohort_group;
