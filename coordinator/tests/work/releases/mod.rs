//! Releases of sums.

mod release_sum;
mod robust;
