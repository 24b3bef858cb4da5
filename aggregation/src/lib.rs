//! Bulk integers: sums and unmasks vectors.
