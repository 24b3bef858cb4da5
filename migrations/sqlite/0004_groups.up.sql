-- Cohorts that are divided into groups, each with a session of secure aggregation of its own.

-- Fixed; the group it was drawn into, counted from 0. NULL: the cohort is not divided.
ALTER TABLE assignment ADD COLUMN cohort_group INTEGER CHECK (cohort_group >= 0);
