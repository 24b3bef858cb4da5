//! The participant: training loop, transport, journal.
