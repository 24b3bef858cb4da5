//! One honest session, recorded at every step: the start of the stateful targets. Created once, from a fixed seed.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use secure_agg::client::{Client, MaskedUpload};
use secure_agg::codec::Message as _;
use secure_agg::messages::{
    Advertise, Agreement, ComplaintBody, Consistency, Delivery, MaskedInput, Roster, Survivors, Unmasking,
};
use secure_agg::params::SessionConfig;
use secure_agg::server::{Admitted, Enrolled, Phase};

use super::support::{Dealt, Member, World, cohort, config, delivery, open_round, plain_sum, resigned, wire};

/// All messages and snapshots of a session with participant 5 dropping out after its input.
pub(crate) struct Session {
    pub(crate) world: World,
    pub(crate) members: Vec<Member>,
    /// Snapshots of participant 1: waiting for the roster, its shares, the survivors and the agreement, and at the end.
    pub(crate) kept: Vec<Vec<u8>>,
    /// The coordinator's phases, R0 to R4.
    pub(crate) phases: Vec<Vec<u8>>,
    pub(crate) adverts: Vec<Advertise>,
    pub(crate) enrolled: Vec<Enrolled>,
    pub(crate) roster: Roster,
    pub(crate) dealt: Dealt,
    pub(crate) delivery: Delivery,
    pub(crate) complaint: Vec<u8>,
    pub(crate) uploads: BTreeMap<u16, MaskedUpload>,
    pub(crate) inputs: Vec<MaskedInput>,
    pub(crate) survivors: Survivors,
    pub(crate) signed: Vec<Consistency>,
    pub(crate) agreement: Agreement,
    pub(crate) answers: Vec<Unmasking>,
    /// The sum of the survivors.
    pub(crate) sum: [Vec<u32>; 2],
}

/// A session of five with a complete mask graph.
pub(crate) fn five() -> &'static Session {
    static SESSION: OnceLock<Session> = OnceLock::new();
    SESSION.get_or_init(|| session(5, config(5, 4)))
}

/// A session of 130 participants, each drawing its neighbours.
pub(crate) fn sparse() -> &'static Session {
    static SESSION: OnceLock<Session> = OnceLock::new();
    SESSION.get_or_init(|| session(130, SessionConfig { max_dropout: 150_000, min_cohort: 130, ..config(130, 2) }))
}

fn session(n: u16, config: SessionConfig) -> Session {
    let (mut world, mut members) = cohort(n, config, 7);
    let (mut kept, mut phases) = (Vec::new(), Vec::new());
    let phase = open_round(&world);
    phases.push(Phase::CollectKeys(open_round(&world)).encode());
    let adverts: Vec<Advertise> = members.iter_mut().map(|member| member.advertise(&mut world)).collect();
    kept.push(members[0].snapshot.clone());
    let admitted: Vec<Admitted<Enrolled>> =
        adverts.iter().map(|advert| phase.admit(advert.clone(), &world.registry).unwrap()).collect();
    let enrolled = admitted.iter().map(|one| one.message().clone()).collect();
    let phase = phase.close(admitted).unwrap();
    let roster = phase.roster().clone();
    let mut dealt = Dealt::new();
    for member in &mut members {
        let shares = member.share(&mut world, &roster).unwrap();
        dealt.insert(shares.body.sender, shares);
    }
    kept.push(members[0].snapshot.clone());
    let bytes = Phase::CollectShares(phase).encode();
    let Ok(Phase::CollectShares(phase)) = Phase::restore(&bytes) else { panic!("another phase") };
    phases.push(bytes);
    let phase = phase.close(dealt.values().cloned().map(Admitted::from_store).collect()).unwrap();
    let to_first = delivery(&phase, &dealt, 1);
    let complaint = ComplaintBody { sid: *phase.sid(), sender: 3, accused: 1, key: [0x5e; 32] };
    let complaint = resigned(complaint, &members[2].signer).encode();
    let mut uploads = BTreeMap::new();
    for (index, member) in (1..).zip(&mut members) {
        uploads.insert(index, member.upload(&delivery(&phase, &dealt, index)));
    }
    kept.push(members[0].snapshot.clone());
    uploads.remove(&n);
    let inputs: Vec<MaskedInput> = uploads.values().map(|upload| wire(&upload.message)).collect();
    let bytes = Phase::CollectMasked(phase).encode();
    let Ok(Phase::CollectMasked(phase)) = Phase::restore(&bytes) else { panic!("another phase") };
    phases.push(bytes);
    let phase = phase.close(inputs.iter().cloned().map(Admitted::from_store).collect()).unwrap();
    let survivors = phase.announcement();
    let signed: Vec<Consistency> =
        members[..usize::from(n) - 1].iter_mut().map(|member| member.check(&survivors).unwrap()).collect();
    kept.push(members[0].snapshot.clone());
    phases.push(Phase::CollectConsistency(phase).encode());
    let Ok(Phase::CollectConsistency(phase)) = Phase::restore(&phases[3]) else { panic!("another phase") };
    let phase = phase.close(signed.iter().cloned().map(Admitted::from_store).collect()).unwrap();
    let agreement = phase.agreement().clone();
    let answers = members[..usize::from(n) - 1].iter_mut().map(|member| member.unmask(&agreement).unwrap()).collect();
    kept.push(members[0].snapshot.clone());
    phases.push(Phase::CollectUnmasking(phase).encode());
    let sum = plain_sum(&world.config, &members, 1..n);
    let delivery = to_first;
    let everything = Session {
        world,
        members,
        kept,
        phases,
        adverts,
        enrolled,
        roster,
        dealt,
        delivery,
        complaint,
        uploads,
        inputs,
        survivors,
        signed,
        agreement,
        answers,
        sum,
    };
    everything.kept.iter().for_each(|kept| drop(Client::restore(kept).unwrap()));
    everything
}
