//! Rosters altered by an adversarial server: members, keys, certificates and parameters.

use crate::attacks::five;
use crate::support::{FLOORS, MODEL_HASH, World, advertised, cohort, config, open_round, resigned, rng};
use secure_agg::BadPublicKey;
use secure_agg::messages::{Advertise, Roster, RosterEntry, RoundId};
use secure_agg::params::{InvalidConfig, Policy, SessionConfig, VectorShape};
use secure_agg::rejection::{MessageRejection, Refusal};

/// Shows member 0 a changed roster and returns its refusal.
fn shown(change: impl Fn(&mut Vec<RosterEntry>, &World)) -> Option<Refusal> {
    let (mut world, mut members) = five(5);
    let phase = advertised(&mut world, &mut members);
    let mut roster = phase.roster().clone();
    let mut entries = roster.entries.as_slice().to_vec();
    change(&mut entries, &world);
    // Parameters are recomputed for the number of entries, so only the change itself can cause the refusal.
    let params = world.config.params(u16::try_from(entries.len()).unwrap().min(5)).unwrap();
    (roster.threshold, roster.out_degree, roster.min_out) = (params.threshold(), params.out_degree(), params.min_out());
    roster.entries = entries.into();
    let refused = members[0].share(&mut world, &roster).err();
    assert_eq!(members[0].client.is_none(), refused.is_some(), "a refusal leaves no state behind");
    refused
}

#[test]
fn roster_without_me() {
    assert_eq!(shown(|entries, _| drop(entries.remove(0))), Some(Refusal::OwnEntry));
}

#[test]
fn roster_with_me_twice() {
    let refused = shown(|entries, _| {
        entries[1] = entries[0].clone();
    });
    assert_eq!(refused, Some(Refusal::RosterOrder { entry: 2 }));
}

#[test]
fn roster_out_of_order() {
    assert_eq!(shown(|entries, _| entries.swap(2, 3)), Some(Refusal::RosterOrder { entry: 4 }));
}

#[test]
fn roster_with_substituted_keys() {
    // The participant's own entry must be byte for byte the same; in another's entry, the signature becomes invalid.
    let refused = shown(|entries, _| entries[0].c_pk[0] ^= 1);
    assert_eq!(refused, Some(Refusal::OwnEntry));
    let refused = shown(|entries, _| entries[0].signature[0] ^= 1);
    assert_eq!(refused, Some(Refusal::OwnEntry));
    for change in [
        (|entry| entry.c_pk[0] ^= 1) as fn(&mut RosterEntry),
        |entry| entry.s_pk[0] ^= 1,
        |entry| entry.b_commit[0] ^= 1,
        |entry| entry.signature[0] ^= 1,
    ] {
        assert_eq!(shown(|entries, _| change(&mut entries[3])), Some(Refusal::Signature { signer: 4 }));
    }
}

#[test]
fn roster_with_one_key_for_two() {
    let refused = shown(|entries, _| entries[3].s_pk = entries[1].s_pk);
    assert_eq!(refused, Some(Refusal::RepeatedKey { entry: 4 }));
}

#[test]
fn roster_with_a_wrong_certificate() {
    let refused = shown(|entries, _| entries[2].certificate = b"cert:somebody else".to_vec().into());
    assert_eq!(refused, Some(Refusal::Certificate { entry: 3 }));
}

#[test]
fn keys_of_another_attempt_in_the_roster() {
    let (mut world, mut members) = five(6);
    let old: Vec<Advertise> = members.iter_mut().map(|member| member.advertise(&mut world)).collect();
    world.round = RoundId::new(b"task-1", 7, 1);
    let phase = advertised(&mut world, &mut members);
    let mut roster = phase.roster().clone();
    let mut entries = roster.entries.as_slice().to_vec();
    entries[4] = RosterEntry::of(&old[4]);
    roster.entries = entries.into();
    assert_eq!(members[0].share(&mut world, &roster).err(), Some(Refusal::Signature { signer: 5 }));
}

#[test]
fn weaker_t_k_m_t_m() {
    for name in ["t", "k_m", "t_m"] {
        let (mut world, mut members) = five(7);
        let phase = advertised(&mut world, &mut members);
        let mut roster = phase.roster().clone();
        match name {
            "t" => roster.threshold -= 1,
            "k_m" => roster.out_degree -= 1,
            _ => roster.min_out -= 1,
        }
        let refused = members[0].share(&mut world, &roster).err().unwrap();
        assert!(matches!(refused, Refusal::Parameter { name: named, .. } if named == name), "{refused}");
    }
}

#[test]
fn weaker_n_min_gamma_n_dp_and_b() {
    // After accepting the task, the participant rejects any other configuration.
    let changes: [fn(&mut SessionConfig); 6] = [
        |config| config.min_cohort = 4,
        |config| config.max_corrupt = 0,
        |config| config.min_included = 1,
        |config| config.model.modulus_bits = 31,
        |config| config.model.input_bound -= 1,
        |config| config.application[0] ^= 1,
    ];
    for change in changes {
        let (mut world, mut members) = five(8);
        let phase = advertised(&mut world, &mut members);
        let mut roster = phase.roster().clone();
        change(&mut roster.config);
        let refused = members[0].share(&mut world, &roster).err();
        assert_eq!(refused, Some(Refusal::Different { what: "configuration" }));
    }
    // Before, it rejects a task below its own minimums, and one whose sum could wrap.
    let (world, members) = five(8);
    for (policy, limit, offered, floor) in [
        (Policy { min_cohort: 4, ..FLOORS }, "min_cohort", 3, 4),
        (Policy { min_tolerated_corrupt: 100_001, ..FLOORS }, "max_corrupt", 100_000, 100_001),
        // A tenth of three rounds down to zero.
        (Policy { min_tolerated_colluders: 1, ..FLOORS }, "tolerated_colluders", 0, 1),
        // More than half of three are two, each of which would learn the other's input.
        (Policy { min_included: 3, ..FLOORS }, "min_included", 2, 3),
    ] {
        assert_eq!(policy.accept(&world.config), Err(Refusal::BelowPolicy { limit, offered, floor }));
        let setup = secure_agg::client::Setup { policy, ..members[0].setup(&world) };
        assert!(secure_agg::client::advertise_keys(setup, &members[0].signer, &mut rng(1)).is_err(), "{limit}");
    }
    let narrow = SessionConfig { model: VectorShape { modulus_bits: 16, ..world.config.model }, ..world.config };
    assert!(matches!(FLOORS.accept(&narrow), Err(Refusal::Config(InvalidConfig::Headroom { .. }))));
}

#[test]
fn tiny_n() {
    let refused = shown(|entries, _| entries.truncate(3));
    assert_eq!(refused, None, "three is the minimum of this task");
    let (mut world, mut members) = cohort(5, SessionConfig { min_cohort: 4, ..config(5, 1) }, 9);
    let phase = advertised(&mut world, &mut members);
    let mut roster = phase.roster().clone();
    roster.entries = roster.entries.as_slice()[..3].to_vec().into();
    let refused = members[0].share(&mut world, &roster).err();
    assert_eq!(refused, Some(Refusal::TooFew { what: "participants", needed: 4, got: 3 }));
    // A task that allows two is invalid.
    let pair = SessionConfig { min_cohort: 2, ..config(5, 1) };
    assert!(matches!(FLOORS.accept(&pair), Err(Refusal::Config(InvalidConfig::Cohort { .. }))));
}

#[test]
fn all_zero_x25519_point() {
    for field in ["c_pk", "s_pk"] {
        let (mut world, mut members) = five(10);
        let phase = open_round(&world);
        let mut adverts: Vec<Advertise> = members.iter_mut().map(|member| member.advertise(&mut world)).collect();
        let body = &mut adverts[4].body;
        *(if field == "c_pk" { &mut body.c_pk } else { &mut body.s_pk }) = [0; 32];
        adverts[4] = resigned(adverts[4].body.clone(), &members[4].signer);
        // The server rejects it from a client …
        let refused = phase.admit(adverts[4].clone(), &world.registry).err();
        assert_eq!(refused, Some(MessageRejection::PublicKey(BadPublicKey::SmallOrder)));
        // … and a client rejects it from a server that admitted it.
        let entries = adverts.iter().map(RosterEntry::of).collect::<Vec<_>>();
        let params = world.config.params(5).unwrap();
        let roster = Roster {
            round: world.round.clone(),
            model_hash: MODEL_HASH,
            config: world.config.clone(),
            threshold: params.threshold(),
            out_degree: params.out_degree(),
            min_out: params.min_out(),
            entries: entries.into(),
        };
        let refused = members[0].share(&mut world, &roster).err();
        let reason = BadPublicKey::SmallOrder;
        assert_eq!(refused, Some(Refusal::PublicKey { entry: 5, reason }), "{field}");
    }
}
