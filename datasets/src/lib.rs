//! Synthetic, IDX and text data, and ways to partition it.
