DROP TABLE secret;
DROP INDEX participant_enrolled;
DROP TABLE sampled;
DROP TABLE privacy_head;
DROP TABLE privacy_ledger;
ALTER TABLE model_version DROP COLUMN clip;
