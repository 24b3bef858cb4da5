ALTER TABLE noised_sum DROP COLUMN coordinator;
