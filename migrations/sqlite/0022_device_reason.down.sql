ALTER TABLE noised_sum DROP COLUMN device_failure;
ALTER TABLE noised_sum DROP COLUMN unmask_because;
ALTER TABLE noised_sum DROP COLUMN sum_because;
