-- Operators who signed in by the identity provider: there is no token that the cookie stands for.

ALTER TABLE sign_in
    ALTER COLUMN token DROP NOT NULL,                                                    -- NULL: an identity's
    ADD COLUMN issuer TEXT,                                                              -- fixed; the provider that vouched; NULL: a token's
    ADD COLUMN subject_sha256 BYTEA CHECK (length(subject_sha256) = 32),                 -- fixed; of issuer, line feed and `sub`; NULL: a token's
    ADD COLUMN claim_values TEXT,                                                        -- fixed; JSON list of what the provider said that counted here
    ADD CONSTRAINT sign_in_of_either CHECK ((token IS NULL) <> (issuer IS NULL)),
    ADD CONSTRAINT sign_in_of_identity CHECK ((issuer IS NULL) = (subject_sha256 IS NULL) AND (issuer IS NULL) = (claim_values IS NULL));

CREATE INDEX sign_in_by_subject ON sign_in (subject_sha256, created_at);
