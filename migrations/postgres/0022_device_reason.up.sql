-- Why a sum was worked on by the devices that did it. Rows of older programs have no reasons.

ALTER TABLE noised_sum ADD COLUMN sum_because TEXT;                                      -- why that device added; NULL: not measured, or not known
ALTER TABLE noised_sum ADD COLUMN unmask_because TEXT
    CHECK ((unmask_because IS NULL) = (sum_because IS NULL));                            -- why that device took the masks off
ALTER TABLE noised_sum ADD COLUMN device_failure TEXT;                                   -- which device failed at it, and how; NULL: none did
