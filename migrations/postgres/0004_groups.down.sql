DROP VIEW pending_place;
ALTER TABLE assignment DROP COLUMN cohort_group;
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
