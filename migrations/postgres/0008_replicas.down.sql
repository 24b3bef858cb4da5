ALTER TABLE lease DROP COLUMN token;
ALTER TABLE check_in DROP COLUMN round_trip_ms;
ALTER TABLE check_in DROP COLUMN sent_round;
DROP TABLE fingerprint;
