-- Cohorts that are divided into groups, each with a session of secure aggregation of its own.

-- Fixed; the group it was drawn into, counted from 0. NULL: the cohort is not divided.
ALTER TABLE assignment ADD COLUMN cohort_group BIGINT CHECK (cohort_group >= 0);

-- A view has the columns that its table had when it was made.
DROP VIEW pending_place;
CREATE VIEW pending_place AS
    SELECT place.* FROM assignment AS place JOIN round USING (task, number, attempt)
    WHERE place.state IN ('ASSIGNED', 'WORKING') AND round.state IN ('SHARING', 'COLLECTING')
UNION ALL
    SELECT place.*
    FROM session JOIN round USING (task, number, attempt) JOIN assignment AS place USING (task, number, attempt)
    WHERE place.state = 'REPORTED' AND place.dropped_in IS NULL
      AND round.state IN ('COLLECTING', 'CONFIRMING', 'UNMASKING')
      AND NOT EXISTS (SELECT 1 FROM session_message
                      WHERE (task, number, attempt, kind, participant)
                          = (place.task, place.number, place.attempt, 'UNMASKING', place.participant))
      AND (round.state <> 'UNMASKING'
           OR EXISTS (SELECT 1 FROM session_message
                      WHERE (task, number, attempt, kind, participant)
                          = (place.task, place.number, place.attempt, 'CONSISTENCY', place.participant)));
