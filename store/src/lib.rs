//! Durable state: rows and blobs.
