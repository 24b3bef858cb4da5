-- What several coordinators over one database must know of each other.

-- Grows whenever the lease is taken or released: what was written under an older one is refused.
ALTER TABLE lease ADD COLUMN token INTEGER NOT NULL DEFAULT 0 CHECK (token >= 0);
