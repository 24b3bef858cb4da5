//! States in which a participant sends in a round: shares, the masked input, its part in unmasking, or that it leaves.

mod abandon;
mod complain;
mod delivery;
mod exchange;
mod opening;
mod share;
mod upload;
