//! One test per row of the specification's lists of adversarial servers and clients (§5), named after the row. Each ends in a
//! participant that leaves, a message that is refused by name, or a result that leaks nothing.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

#[path = "attacks/bounds.rs"]
mod bounds;
#[path = "attacks/client.rs"]
mod client;
#[path = "attacks/isolation.rs"]
mod isolation;
#[path = "attacks/restart.rs"]
mod restart;
#[path = "attacks/roster.rs"]
mod roster;
#[path = "attacks/server.rs"]
mod server;
mod support;

use secure_agg::IndexSet;
use secure_agg::messages::{Agreement, AgreementSignature, Consistency, Survivors};
use secure_agg::server::CollectConsistency;
use support::{Member, World, cohort, config, masked, shared};

/// Five participants, t = 3.
fn five(seed: u64) -> (World, Vec<Member>) {
    cohort(5, config(5, 4), seed)
}

/// Five participants of whom all sent an input; `lost` uploads did not arrive.
fn five_masked(seed: u64, lost: &[u16]) -> (World, Vec<Member>, CollectConsistency) {
    let (mut world, mut members) = five(seed);
    let (phase, dealt) = shared(&mut world, &mut members);
    let (phase, _) = masked(phase, &dealt, &mut members, |index| !lost.contains(&index));
    (world, members, phase)
}

fn announce(phase: &CollectConsistency, survivors: &[u16]) -> Survivors {
    told(*phase.sid(), IndexSet::of(5, survivors.iter().copied()))
}

/// What a server says of survivors where everybody masks with everybody.
fn told(sid: [u8; 32], survivors: IndexSet) -> Survivors {
    Survivors { sid, survivors, inputs: Vec::new().into() }
}

fn signatures(signed: &[Consistency]) -> Vec<AgreementSignature> {
    signed.iter().map(|one| AgreementSignature { signer: one.sender, signature: one.signature }).collect()
}

fn agreement(phase: &CollectConsistency, signed: &[Consistency]) -> Agreement {
    Agreement { sid: *phase.sid(), signatures: signatures(signed).into() }
}
