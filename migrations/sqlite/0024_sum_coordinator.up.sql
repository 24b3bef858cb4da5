-- Which coordinator did the work on a sum, as rows of older programs do not tell; sums by their time, to tell what devices did last.

ALTER TABLE noised_sum ADD COLUMN coordinator TEXT CHECK (length(coordinator) BETWEEN 1 AND 128)
    CHECK (coordinator IS NULL OR sum_device IS NOT NULL);                               -- fixed; its name; NULL: not measured, or not known

CREATE INDEX noised_sum_by_release ON noised_sum (created_at);
