//! Counted participations: a ledger charges for a participant's releases, not for all rounds; figures are dp-accounting's; no order of
//! participations reveals more; and an audit finds participants that are in more releases than the ledger counts.

use learning::Update;
use learning::privacy::accountant::{Gaussians, ORDERS, RdpCurve, SumMechanism, SumNoise};
use learning::privacy::audit::Guesses;
use learning::privacy::{
    Budget, Goal, Ledger, LedgerError, NoiseSampler, NoiseShares, PlanError, PlanRequest, PlanSampling, PrivateCodec,
    PrivateCodecParams, Release, Sampled, plan,
};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha20Rng;
use task_spec::{PrivacyAccounting, PrivacyMechanism, PrivacyView};

const SENSITIVITY: f64 = 65_536.0;
const SHARES: u32 = 64;
const BOTH: [PrivacyMechanism; 2] =
    [PrivacyMechanism::DistributedDiscreteGaussian, PrivacyMechanism::DistributedSkellam];

fn seal(_: &[u8]) -> [u8; 32] {
    [0; 32]
}

fn open(mechanism: PrivacyMechanism, epsilon: Option<f64>, delta: f64) -> Ledger {
    let budget = Budget { epsilon, delta, against: PrivacyView::CohortKnown, accounting: PrivacyAccounting::default() };
    Ledger::open(mechanism, budget, vec![], &seal).unwrap()
}

/// A release with so many shares, of which [`SHARES`] make up this multiplier.
fn release(mechanism: PrivacyMechanism, z: f64, round: u64, survivors: u32, participations: Option<u32>) -> Release {
    let total = z * SENSITIVITY;
    let shares = match mechanism {
        PrivacyMechanism::DistributedSkellam => NoiseShares::skellam(total, SHARES, 0),
        _ => NoiseShares::discrete_gaussian(total, SHARES, 0),
    };
    Release {
        round,
        attempt: 1,
        mechanism,
        sum: shares.unwrap().mechanism(survivors, SENSITIVITY, 8192).unwrap(),
        sampled: Sampled::Anyhow,
        participants: survivors,
        tree_release: None,
        bands: None,
        participations,
    }
}

/// `data/participations.csv` is what `data/participations.py` prints with dp-accounting 0.6.0.
#[test]
fn figures_of_counted_participations_are_dp_accountings() {
    let lines: Vec<&str> = include_str!("data/participations.csv").lines().skip(1).collect();
    for mechanism in BOTH {
        let rows = lines.iter().filter_map(|line| line.strip_prefix(mechanism.as_str())?.strip_prefix(','));
        let rows: Vec<Vec<f64>> =
            rows.map(|row| row.split(',').map(|field| field.parse().unwrap()).collect()).collect();
        assert_eq!(rows.len(), 12);
        for row in rows {
            let [z, rounds, most, delta, by_rdp, below, above] = row[..] else { panic!("{row:?}") };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "the file has small whole numbers"
            )]
            let (rounds, most) = (rounds as u64, most as u32);
            let mut ledger = open(mechanism, None, delta);
            for round in 1..=rounds {
                ledger.charge(release(mechanism, z, round, SHARES, Some(most)), &seal).unwrap();
            }
            let spent = ledger.spent();
            assert_eq!((spent.published, spent.server), (spent.cohort_known, Some(spent.cohort_known)));
            let least = below * (1.0 - 1e-9);
            let largest = if spent.cohort_closeness.is_some() { 1.001 * above } else { by_rdp * (1.0 + 1e-6) };
            assert!((least..=largest).contains(&spent.cohort_known), "{mechanism:?} {row:?}: {spent:?}");
            let known = ledger.cost_after(None).cohort_known;
            let at = |order: f64| known.values()[ORDERS.iter().position(|&at| at == order).unwrap()];
            let integers = RdpCurve::from_orders(|order| if order.fract() == 0.0 { at(order) } else { f64::INFINITY });
            let got = integers.epsilon(delta).0;
            assert!((got / by_rdp - 1.0).abs() < 1e-6, "{mechanism:?} {row:?}: {got} by divergences");
        }
    }
}

#[test]
fn ledger_charges_a_participants_releases_and_no_more() {
    for mechanism in BOTH {
        let charge = |ledger: &mut Ledger, round: u64, survivors: u32, most: Option<u32>| {
            let row = ledger.charge(release(mechanism, 6.0, round, survivors, most), &seal).unwrap();
            row.row.total.cohort_known
        };
        // Without a limit, three releases of the smallest cohort.
        let mut all = open(mechanism, None, 1e-5);
        let three = (1..=3).map(|round| charge(&mut all, round, SHARES, None)).last().unwrap();
        let mut ledger = open(mechanism, None, 1e-5);
        // The costliest, of the smallest cohort, is among them, and then counts for all.
        let survivors = [90, SHARES, 80, 100, 70, SHARES, 90];
        let totals: Vec<f64> =
            (1..).zip(survivors).map(|(round, survivors)| charge(&mut ledger, round, survivors, Some(3))).collect();
        assert!(totals.windows(2).all(|pair| pair[0] <= pair[1]), "{totals:?}");
        assert!(totals[2] < three && totals[3..].iter().all(|total| (total / three - 1.0).abs() < 1e-12), "{totals:?}");
        // Rows restore the ledger; a row without its maximum does not fit.
        let rows = ledger.rows().to_vec();
        let json = serde_json::to_string(&rows).unwrap();
        assert!(json.contains("\"participations\":3"), "{json}");
        let without = serde_json::to_string(all.rows()).unwrap();
        assert!(!without.contains("participations"), "rows of other tasks are as they were: {without}");
        let again = Ledger::open(mechanism, *ledger.budget(), serde_json::from_str(&json).unwrap(), &seal).unwrap();
        assert_eq!((again.spent(), again.rows()), (ledger.spent(), ledger.rows()));
        for most in [None, Some(4)] {
            let error = ledger.would_exceed(&release(mechanism, 6.0, 9, SHARES, most)).unwrap_err();
            assert_eq!(error, LedgerError::Participations { expected: Some(3), got: most });
        }
        let error = ledger.would_exceed(&release(mechanism, 6.0, 9, SHARES, None)).unwrap_err().to_string();
        assert!(error.contains("3 releases at most") && error.contains("that counts all releases"), "{error}");
        // A budget for three has room for any number; one for less ends before the third.
        let next = release(mechanism, 6.0, 1, SHARES, Some(3));
        assert_eq!(open(mechanism, Some(three), 1e-5).room_for(&next, 1000), 1000);
        assert_eq!(open(mechanism, Some(0.999 * three), 1e-5).room_for(&next, 1000), 2);
    }
}

#[test]
fn release_rejects_participations_that_no_proof_covers() {
    let good = release(BOTH[0], 6.0, 1, SHARES, Some(2));
    assert_eq!(good.check(), Ok(()));
    let noise = SumNoise::DiscreteGaussian { sigma: SENSITIVITY };
    let central = SumMechanism { noise, ..good.sum };
    for (bad, says) in [
        (Release { participations: Some(0), ..good }, "allows one at least"),
        (Release { mechanism: PrivacyMechanism::CentralGaussian, sum: central, ..good }, "nothing else"),
        (Release { sampled: Sampled::Poisson { rate: 0.5 }, ..good }, "draws gain nothing"),
    ] {
        assert!(bad.check().unwrap_err().to_string().contains(says), "{bad:?}");
    }
}

fn request(mechanism: PrivacyMechanism, participations: Option<u32>) -> PlanRequest {
    PlanRequest {
        mechanism,
        population: 1000,
        cohort: 100,
        rounds: 10,
        delta: 1e-5,
        goal: Goal::Epsilon(1.0),
        sampling: PlanSampling::Anyhow,
        parameters: 7850,
        modulus_bits: 32,
        smallest_cohort: 70,
        colluders: 7,
        participations,
        separation: None,
        adaptive: false,
        max_weight: 1,
        expected_weight: 1.0,
        accounting: PrivacyAccounting::default(),
    }
}

/// Noise for k releases is that of a task of k rounds, however many rounds there are.
#[test]
fn plan_solves_for_the_releases_of_a_participant() {
    for mechanism in BOTH {
        let of = |request: &PlanRequest| plan(request).unwrap();
        for most in [1, 2, 5] {
            let counted = request(mechanism, Some(most));
            let planned = of(&counted);
            let short = of(&PlanRequest { rounds: most, participations: None, ..counted });
            assert!((planned.noise_multiplier / short.noise_multiplier - 1.0).abs() < 1e-5, "{mechanism:?} {most}");
            assert!(planned.epsilon.published <= 1.0 && planned.epsilon.published > 0.999, "{:?}", planned.epsilon);
            assert_eq!(planned.epsilon.published, planned.epsilon.cohort_known);
            assert_eq!((counted.most_participations(), counted.expected_participations()), (most, 1.0));
            let curve = counted.curve(planned.noise_multiplier, 10).unwrap();
            let (first, rest) = curve.split_at(most as usize);
            assert!(first.windows(2).all(|pair| pair[0].1.published < pair[1].1.published));
            assert!(rest.iter().all(|(_, epsilons)| *epsilons == planned.epsilon), "{curve:?}");
        }
        // Ten times the releases need sqrt(10) times the noise, and a little more by divergences.
        let ratio = of(&request(mechanism, None)).noise_multiplier / of(&request(mechanism, Some(1))).noise_multiplier;
        assert!((3.1..3.25).contains(&ratio), "{ratio}");
        let crowded = plan(&PlanRequest { population: 999, ..request(mechanism, Some(1)) }).unwrap_err();
        assert!(matches!(&crowded, PlanError::Turns(turns) if turns.needed == 1000), "{crowded}");
        let many = plan(&request(mechanism, Some(11))).unwrap_err().to_string();
        assert!(many.contains("participations must be at least 1 and at most the rounds, not 11"), "{many}");
    }
}

/// The most by which one side of a pair of distributions exceeds `ratio` times the other.
fn distance(pairs: &[(f64, f64)], ratio: f64) -> f64 {
    let over = |a: f64, b: f64| (a - ratio * b).max(0.0);
    let one: f64 = pairs.iter().map(|&(a, b)| over(a, b)).sum();
    one.max(pairs.iter().map(|&(a, b)| over(b, a)).sum())
}

/// Three releases of three possible outcomes. Bit `node` of a policy decides whether the participant is in the release after the outcomes
/// that lead to this node of the tree, as long as it was in fewer than `most`.
fn outcomes(policy: u32, most: usize) -> Vec<(f64, f64)> {
    const WITHOUT: [f64; 3] = [0.5, 0.3, 0.2];
    const WITH: [f64; 3] = [0.2, 0.3, 0.5];
    let mut all = Vec::new();
    for path in 0..27 {
        let (mut pair, mut node, mut times) = ((1.0, 1.0), 0, 0);
        for step in [path / 9, path / 3 % 3, path % 3] {
            let is_in = policy >> node & 1 == 1 && times < most;
            times += usize::from(is_in);
            // Others' updates shape the releases without it in the same way on both sides.
            let rest = WITHOUT[(step + node) % 3];
            let (a, b) = if is_in { (WITH[step], WITHOUT[step]) } else { (rest, rest) };
            pair = (pair.0 * a, pair.1 * b);
            node = 3 * node + 1 + step;
        }
        all.push(pair);
    }
    all
}

/// The theorem of docs/PRIVACY.md, over every adaptive order of participations.
#[test]
fn no_order_of_participations_reveals_more_than_as_many_releases() {
    // Always in: the first `most` releases.
    let composed = |most: usize, ratio: f64| distance(&outcomes(u32::MAX, most), ratio);
    for ratio in [1.0, 1.3, 2.0, 3.0, 5.0] {
        for most in [1, 2] {
            let worst = (0..1 << 13).map(|policy| distance(&outcomes(policy, most), ratio)).fold(0.0, f64::max);
            assert!(worst <= composed(most, ratio) + 1e-12, "{most} at {ratio}: {worst}");
            assert!(worst >= composed(most, ratio) - 1e-12);
        }
        assert!(ratio == 5.0 || composed(3, ratio) > composed(2, ratio), "one more release shows at {ratio}");
    }
}

const CANARIES: usize = 256;
const RELEASES: usize = 36;

/// Scores of canaries, each with a coordinate of its own, after [`RELEASES`] releases of 32 participants' noise.
fn scores(z: f64, is_in: impl Fn(usize, usize) -> bool) -> Vec<f64> {
    let codec = PrivateCodec::new(PrivateCodecParams {
        parameters: CANARIES,
        modulus_bits: 32,
        max_cohort: 256,
        noise_multiplier: z,
        noise_ceiling: 3.0,
        rotate: true,
        wrap_sigmas: None,
        count_noise: None,
        max_weight: 1,
        expected_cohort: 32.0,
        expected_weight: 1.0,
    })
    .unwrap();
    let shares = NoiseShares::discrete_gaussian(codec.sigma().value(), 32, 0).unwrap();
    let sampler = NoiseSampler::new(shares.share);
    let mut rng = ChaCha20Rng::seed_from_u64(38);
    let mut scores = vec![0.0; CANARIES];
    for release in 0..RELEASES {
        let seed = [u8::try_from(release).unwrap(); 32];
        let mut sum = vec![0_u32; codec.len()];
        for canary in (0..CANARIES).filter(|&canary| is_in(canary, release)) {
            let mut delta = vec![0.0; CANARIES];
            delta[canary] = 9.0;
            let update = Update { delta, examples: 1, metrics: vec![] };
            let words = codec.encode(&update, 1.0, &seed, &mut rng).unwrap().words;
            sum.iter_mut().zip(&words).for_each(|(sum, word)| *sum = sum.wrapping_add(*word));
        }
        (0..32).for_each(|_| sampler.add_to(&mut sum, 32, &mut rng));
        let sum = learning::privacy::ExactSum::new(sum, 32, 32).unwrap();
        let released = sum.release_noised_by_participants(&shares).unwrap();
        let mean = codec.decode(&released, 1.0, &seed).unwrap();
        scores.iter_mut().zip(&mean.delta).for_each(|(score, value)| *score += f64::from(*value));
    }
    scores
}

/// Fair coins include canaries; 50 guesses of each kind are fixed beforehand. A participant in every release has a score of 6 / z standard
/// deviations.
#[test]
fn audit_finds_participants_in_more_releases_than_counted() {
    let (delta, z) = (1e-5, 3.7304);
    let counted = |releases: u64| Gaussians::new(1.0, z, releases).epsilon(delta).unwrap();
    let ledger = counted(1);
    assert!((0.999..1.001).contains(&ledger), "{ledger}");
    let mut coins = ChaCha20Rng::seed_from_u64(7);
    let included: Vec<bool> = (0..CANARIES).map(|_| coins.next_u32() >> 31 == 1).collect();
    let bound = |scores: &[f64]| {
        let guesses = Guesses::from_scores(scores, &included, 50, 50).unwrap();
        (guesses.correct(), guesses.epsilon_at_least(delta, 0.99).unwrap())
    };
    let (right, once) = bound(&scores(z, |canary, release| included[canary] && canary % RELEASES == release));
    assert!(once <= ledger, "{right} of 100 right: epsilon is at least {once} where {ledger} is charged");
    let (right, always) = bound(&scores(z, |canary, _| included[canary]));
    assert!(always > ledger, "{right} of 100 right: {always} does not disprove {ledger}");
    assert!(always <= counted(RELEASES as u64));
}
