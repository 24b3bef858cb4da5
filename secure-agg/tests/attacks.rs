//! One test per row of the specification's lists of adversarial servers and clients (§5), named after the row. Each ends with a participant
//! that leaves, a named rejection, or a result without a leak.

mod batches;
mod bounds;
mod client;
mod isolation;
mod restart;
mod roster;
mod server;

use crate::support::{Member, World, cohort, config, masked, shared};
use secure_agg::IndexSet;
use secure_agg::messages::{Agreement, AgreementSignature, Consistency, Survivors};
use secure_agg::server::CollectConsistency;

/// Five participants, t = 3.
fn five(seed: u64) -> (World, Vec<Member>) {
    cohort(5, config(5, 4), seed)
}

/// Five participants, all of which sent an input; `lost` uploads did not arrive.
fn five_masked(seed: u64, lost: &[u16]) -> (World, Vec<Member>, CollectConsistency) {
    let (mut world, mut members) = five(seed);
    let (phase, dealt) = shared(&mut world, &mut members);
    let (phase, _) = masked(phase, &dealt, &mut members, |index| !lost.contains(&index));
    (world, members, phase)
}

fn announce(phase: &CollectConsistency, survivors: &[u16]) -> Survivors {
    told(*phase.sid(), IndexSet::of(5, survivors.iter().copied()))
}

/// A server's announcement of survivors in a complete mask graph.
fn told(sid: [u8; 32], survivors: IndexSet) -> Survivors {
    Survivors { sid, survivors, inputs: Vec::new().into() }
}

fn signatures(signed: &[Consistency]) -> Vec<AgreementSignature> {
    signed.iter().map(|one| AgreementSignature { signer: one.sender, signature: one.signature }).collect()
}

fn agreement(phase: &CollectConsistency, signed: &[Consistency]) -> Agreement {
    Agreement { sid: *phase.sid(), signatures: signatures(signed).into() }
}
