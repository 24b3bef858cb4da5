//! A coordinator that splits fixed batches, and one that tries to choose a member's companions.

use secure_agg::IndexSet;
use secure_agg::batch::batch_id;
use secure_agg::batch::draw::{Batch, Drawing, Drawn, Offered, Pool, Revealed, admit_offer, admit_reveal, offer};
use secure_agg::messages::{ClientId, Roster};
use secure_agg::params::InvalidConfig;
use secure_agg::rejection::{Abort, MessageRejection, Refusal};

use crate::attacks::told;
use crate::support::{
    Course, Member, Seen, World, advertised, certificate_of, cohort, config, masked, open_round, plain_sum, rng, run,
    shared, wire,
};

/// Nine members in batches of three: positions 1 to 3, 4 to 6 and 7 to 9.
fn batched(seed: u64) -> (World, Vec<Member>) {
    let (world, mut members) = cohort(9, config(9, 4), seed);
    for batch in members.chunks_mut(3) {
        let id = batch_id(batch.iter().map(|member| member.id.as_slice()));
        for member in batch {
            (member.batch, member.min_batch) = (Some(id), 3);
        }
    }
    (world, members)
}

#[test]
fn sum_contains_whole_batches_only() {
    let (mut world, mut members) = batched(90);
    world.config.max_corrupt = 0;
    for restarts in [false, true] {
        // Member 5 sends no input, so 4 and 6 are left out too.
        let mut drops = vec![5; 9];
        drops[4] = 2;
        let course = Course { drops, restarts, replays: false, shuffles: false };
        let (unmasked, sums) = run(&mut world, &mut members, &course, &mut Seen::default()).unwrap();
        let survivors = IndexSet::of(9, [1, 2, 3, 7, 8, 9]);
        assert_eq!(*unmasked.survivors(), survivors);
        assert_eq!(sums, plain_sum(&world.config, &members, survivors.iter()));
    }
}

#[test]
fn signers_refuse_survivors_with_a_torn_batch() {
    let (mut world, mut members) = batched(91);
    let (phase, dealt) = shared(&mut world, &mut members);
    let (phase, _) = masked(phase, &dealt, &mut members, |_| true);
    // The coordinator leaves out the victim 1, or includes only the victim of its batch, and sends it no request to sign.
    for survivors in [vec![2, 3, 4, 5, 6, 7, 8, 9], vec![1, 4, 5, 6, 7, 8, 9]] {
        let claim = told(*phase.sid(), IndexSet::of(9, survivors));
        for signer in &mut members[3..] {
            signer.restore();
            let refused = signer.check(&claim).err();
            assert!(matches!(refused, Some(Refusal::BatchNotWhole { .. })), "{refused:?}");
        }
    }
    // Without a whole batch the others agree.
    let claim = told(*phase.sid(), IndexSet::of(9, 4..=9));
    members[4].restore();
    members[4].check(&claim).unwrap();
}

/// Changes a roster in the ways open to a coordinator, without new signatures.
fn changed(roster: &Roster, change: impl FnOnce(&mut Vec<secure_agg::messages::RosterEntry>)) -> Roster {
    let mut entries = roster.entries.clone().into_vec();
    change(&mut entries);
    let mut roster = roster.clone();
    let params = roster.config.params(u16::try_from(entries.len()).unwrap()).unwrap();
    (roster.threshold, roster.out_degree, roster.min_out) = (params.threshold(), params.out_degree(), params.min_out());
    roster.entries = entries.into();
    roster
}

#[test]
fn roster_without_a_companion_is_refused() {
    let (mut world, mut members) = batched(92);
    let roster = advertised(&mut world, &mut members).roster().clone();
    let share = |world: &mut World, member: &mut Member, roster: &Roster| {
        member.restore();
        member.share(world, roster).err()
    };
    let without_companion = changed(&roster, |entries| drop(entries.remove(1)));
    // Position 1's own batch, and a batch of other members.
    for member in [0, 2, 5] {
        let refused = share(&mut world, &mut members[member], &without_companion);
        assert_eq!(refused, Some(Refusal::BatchNotWhole { entry: 1 }));
    }
    // The statement is signed, so it cannot be removed.
    let unstated = changed(&roster, |entries| {
        for entry in &mut entries[..3] {
            entry.client_id = ClientId::new(entry.client_id.as_slice().to_vec(), None);
        }
    });
    for member in [0, 5] {
        let refused = share(&mut world, &mut members[member], &unstated);
        assert_eq!(refused, Some(Refusal::Signature { signer: 1 }));
    }
}

#[test]
fn member_without_a_batch_is_refused_where_batches_are_demanded() {
    let (mut world, mut members) = batched(93);
    members[8].batch = None;
    for member in &mut members[6..8] {
        member.batch = None;
    }
    let roster = advertised(&mut world, &mut members).roster().clone();
    let refused = members[0].share(&mut world, &roster).err();
    assert_eq!(refused, Some(Refusal::NotInBatch { entry: 7, min: 3 }));
    // Stated batches are enforced even if no batches are required.
    members[0].restore();
    members[0].min_batch = 0;
    members[0].share(&mut world, &roster).unwrap();
}

#[test]
fn coordinator_opens_no_session_with_an_incomplete_batch() {
    let (mut world, mut members) = batched(94);
    let phase = open_round(&world);
    let mut admitted = Vec::new();
    for member in members.iter_mut().skip(1) {
        admitted.push(phase.admit(member.advertise(&mut world), &world.registry).unwrap());
    }
    assert_eq!(phase.close(admitted).err(), Some(Abort::Config(InvalidConfig::Batch { entry: 1 })));
}

const DRAW: [u8; 16] = [0xd7; 16];

/// Offers of `n` members for batches of three, through snapshots.
fn offers(n: u16, seed: u64) -> (World, Vec<Member>, Vec<Offered>) {
    let (world, members) = cohort(n, config(n, 4), seed);
    let mut rng = rng(seed + 1);
    let make = |member: &Member| {
        let certificate = certificate_of(&member.id);
        let offered = offer(DRAW, 3, &member.id, &certificate, &member.signer, &mut rng).unwrap();
        let mut other = offered.persist().expose().to_vec();
        other[0] = 2;
        assert!(Drawing::restore(&other).is_err(), "the format of sessions with batches is another one");
        let Drawing::Offered(restored) = Drawing::restore(offered.persist().expose()).unwrap() else { panic!() };
        assert_eq!(restored.message(), offered.message());
        admit_offer(&DRAW, 3, &wire(restored.message()), &world.registry).unwrap();
        restored
    };
    let offered = members.iter().map(make).collect();
    (world, members, offered)
}

fn revealed(world: &World, offered: Vec<Offered>, pool: &Pool, min: u16) -> Vec<Revealed> {
    let reveal = |offered: Offered| {
        let state = offered.reveal(&wire(pool), min, &world.registry).unwrap();
        let Drawing::Revealed(restored) = Drawing::restore(state.persist().expose()).unwrap() else { panic!() };
        *restored
    };
    offered.into_iter().map(reveal).collect()
}

fn drawn(revealed: &[Revealed]) -> Drawn {
    let nonces: Vec<_> = revealed.iter().map(|state| state.message().nonce).collect();
    Drawn { draw: DRAW, nonces: nonces.into() }
}

#[test]
fn everybody_computes_the_same_partition() {
    let (world, members, offered) = offers(12, 95);
    let pool = Pool::fix(DRAW, 3, offered.iter().rev().map(|state| state.message().clone()).collect());
    let revealed = revealed(&world, offered, &pool, 10);
    for (member, state) in members.iter().zip(&revealed) {
        admit_reveal(&pool, &member.id, &wire(state.message())).unwrap();
    }
    let drawn = wire(&drawn(&revealed));
    let batches: Vec<Batch> = revealed.iter().map(|state| state.finish(&drawn).unwrap()).collect();
    for (member, batch) in members.iter().zip(&batches) {
        assert_eq!(batch.size(), 3);
        assert_eq!(batch.id, batch_id(batch.members.iter().map(|id| id.as_slice())));
        assert!(batch.members.iter().any(|id| id.as_slice() == member.id));
        let companions = batches.iter().filter(|other| other.id == batch.id).count();
        assert_eq!(companions, 3);
    }
}

#[test]
fn pools_that_a_coordinator_has_changed_are_refused() {
    let refuse = |seed, min, change: &dyn Fn(&mut Vec<secure_agg::batch::draw::PoolEntry>)| {
        let (world, _, offered) = offers(9, seed);
        let mut pool = Pool::fix(DRAW, 3, offered.iter().map(|state| state.message().clone()).collect());
        let mut entries = pool.offers.clone().into_vec();
        change(&mut entries);
        pool.offers = entries.into();
        offered.into_iter().next().unwrap().reveal(&pool, min, &world.registry).err()
    };
    assert_eq!(refuse(96, 9, &|_| ()), None);
    let few = |needed, got| Some(Refusal::TooFew { what: "participants among whom batches are drawn", needed, got });
    assert_eq!(refuse(96, 10, &|_| ()), few(10, 9));
    assert_eq!(refuse(96, 3, &|entries| entries.truncate(3)), few(6, 3));
    assert!(matches!(refuse(96, 3, &|entries| drop(entries.pop())), Some(Refusal::Inconsistent { .. })));
    // The sender has not signed a commitment made after others revealed.
    assert_eq!(refuse(96, 9, &|entries| entries[4].commitment[0] ^= 1), Some(Refusal::Signature { signer: 5 }));
    assert_eq!(refuse(96, 9, &|entries| entries[0].commitment[0] ^= 1), Some(Refusal::OwnEntry));
    assert_eq!(refuse(96, 3, &|entries| drop(entries.drain(..3))), Some(Refusal::OwnEntry));
    assert_eq!(refuse(96, 9, &|entries| entries.swap(2, 3)), Some(Refusal::RosterOrder { entry: 4 }));
}

#[test]
fn nonces_other_than_those_committed_to_are_refused() {
    let (world, members, offered) = offers(9, 97);
    let pool = Pool::fix(DRAW, 3, offered.iter().map(|state| state.message().clone()).collect());
    let revealed = revealed(&world, offered, &pool, 9);
    let honest = drawn(&revealed);
    for position in 0..9 {
        let mut nonces = honest.nonces.clone().into_vec();
        nonces[position][0] ^= 1;
        let bent = Drawn { draw: DRAW, nonces: nonces.into() };
        assert_eq!(revealed[0].finish(&bent), Err(Refusal::Inconsistent { what: "a revealed nonce" }));
    }
    let mut bent = revealed[1].message().clone();
    bent.nonce[31] ^= 0x80;
    assert_eq!(admit_reveal(&pool, &members[1].id, &bent), Err(MessageRejection::Commitment));
    assert_eq!(admit_reveal(&pool, b"nobody", revealed[1].message()), Err(MessageRejection::WrongRound));
}

/// With four colluders of nine, both companions of the victim collude as often as in uniform draws:
/// C(4, 2) / C(8, 2) = 0.214.
#[test]
fn companions_of_a_victim_are_uniform() {
    let draws = 80u32;
    let mut surrounded = 0;
    for seed in 0..draws {
        let (world, _, offered) = offers(9, 1000 + u64::from(seed));
        let pool = Pool::fix(DRAW, 3, offered.iter().map(|state| state.message().clone()).collect());
        let revealed = revealed(&world, offered, &pool, 9);
        let batch = revealed[0].finish(&drawn(&revealed)).unwrap();
        // Members 6 to 9 collude.
        let colluders = batch.members.iter().filter(|id| id.as_slice() >= b"client-0006".as_slice()).count();
        surrounded += u32::from(colluders == 2);
    }
    let expected = f64::from(draws) * 6.0 / 28.0;
    let deviation = (expected * (1.0 - 6.0 / 28.0)).sqrt();
    assert!((f64::from(surrounded) - expected).abs() < 3.0 * deviation, "{surrounded} of {draws}");
}
