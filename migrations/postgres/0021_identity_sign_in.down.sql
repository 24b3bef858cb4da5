DELETE FROM sign_in WHERE token IS NULL;
ALTER TABLE sign_in
    DROP CONSTRAINT sign_in_of_either,
    DROP CONSTRAINT sign_in_of_identity,
    DROP COLUMN issuer,
    DROP COLUMN subject_sha256,
    DROP COLUMN claim_values,
    ALTER COLUMN token SET NOT NULL;
