-- Which coordinator's devices worked on a sum. Rows of older programs do not tell.

ALTER TABLE noised_sum ADD COLUMN coordinator TEXT COLLATE "C" CHECK (length(coordinator) BETWEEN 1 AND 128)
    CHECK (coordinator IS NULL OR sum_device IS NOT NULL);                               -- fixed; its name; NULL: not measured, or not known
