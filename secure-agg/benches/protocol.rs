//! The cost of a session: one participant and the coordinator, each by part, in CPU time of one core, and bytes by
//! phase.
//!
//! `cargo bench -p secure-agg --bench protocol [-- N…]` runs a whole cohort of each size N (10 and 100 by default; 1000
//! takes minutes, since every participant is computed). A tenth of the cohort drops out after dealing shares. Keystream
//! and key agreement alone are measured in the same run, for comparison.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench measures and prints"
)]

#[path = "protocol/memory.rs"]
mod memory;
#[path = "../tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit as _, StreamCipher as _};
use chacha20::rand_core::Rng as _;
use secure_agg::client::{Client, MaskedUpload, Received};
use secure_agg::codec::Message as _;
use secure_agg::mask::{self, MaskPlan, MaskSeed, Plane, Sign};
use secure_agg::messages::Delivery;
use secure_agg::modular::Modulus;
use secure_agg::params::{SessionConfig, VectorShape};
use secure_agg::server::{Admitted, CollectMasked};
use secure_agg::{MemorySigner, Signer as _};
use support::{Dealt, MODEL_HASH, Member, World, cohort, config, delivery, open_round, rng, sealed};
use x25519_dalek::{PublicKey, StaticSecret};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == memory::ROLE) {
        return memory::coordinate(&arguments[1..]);
    }
    let sizes: Vec<u16> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![10, 100] } else { sizes };
    let primitives = Primitives::measure();
    println!(
        "one X25519 {:.1} µs, one Ed25519 verification {:.1} µs, keystream {:.2} GB/s",
        micros(primitives.agreement),
        micros(primitives.verification),
        1.0 / (primitives.keystream_byte * 1e9)
    );
    for n in sizes {
        session(n, &primitives);
        memory::print(n, 1000);
        if n <= 100 {
            memory::print(n, 1_000_000);
        }
    }
}

fn session_config(n: u16) -> SessionConfig {
    let shape = VectorShape { words: 1000, modulus_bits: 32, input_bound: 1 << 20, noise_margin: 0 };
    SessionConfig { model: shape, max_dropout: 300_000, min_cohort: n, ..config(n, 1000) }
}

/// CPU time of this thread, if the system reports it; its resolution is a few milliseconds.
fn on_cpu() -> Option<Duration> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    line.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Duration of `work`: CPU time if long enough to be measured, otherwise wall time.
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let (cpu, started) = (on_cpu(), Instant::now());
    let result = work();
    let wall = started.elapsed();
    let cpu = on_cpu().zip(cpu).map(|(after, before)| after - before);
    (result, cpu.filter(|_| wall > Duration::from_millis(40)).unwrap_or(wall))
}

/// The fastest of several equal runs, the least disturbed one.
fn fastest(times: Vec<Duration>) -> Duration {
    times.into_iter().min().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Reference costs.
struct Primitives {
    agreement: Duration,
    verification: Duration,
    /// Seconds a byte.
    keystream_byte: f64,
}

impl Primitives {
    fn measure() -> Self {
        let (secret, peer) = (StaticSecret::from([7; 32]), PublicKey::from(&StaticSecret::from([9; 32])));
        let times = 500u32;
        let ((), agreements) = timed(|| (0..times).for_each(|_| drop(black_box(secret.diffie_hellman(&peer)))));
        let signer = MemorySigner::from_seed(&[5; 32]).unwrap();
        let (text, identity) = ([3; 75], signer.identity());
        let signature = signer.sign(&text).unwrap();
        let ((), verifications) =
            timed(|| (0..times).for_each(|_| assert!(black_box(identity.verifies(&text, &signature)))));
        let mut block = vec![0u8; 1 << 14];
        let blocks = 4096u32;
        let mut cipher = ChaCha20::new(&[1; 32].into(), &[0; 12].into());
        let ((), stream) = timed(|| (0..blocks).for_each(|_| cipher.apply_keystream(black_box(&mut block))));
        Self {
            agreement: agreements / times,
            verification: verifications / times,
            keystream_byte: stream.as_secs_f64() / (f64::from(blocks) * 16_384.0),
        }
    }
}

fn session(n: u16, primitives: &Primitives) {
    let config = session_config(n);
    let params = config.params(n).unwrap();
    println!(
        "\nn = {n}: t = {}, k_m = {}, t_m = {}, a tenth drops out after dealing",
        params.threshold(),
        params.out_degree(),
        params.min_out()
    );
    let (mut world, mut members) = cohort(n, config, 1);
    let mut traffic = Traffic::default();
    let (phase, dealt) = keys_and_shares(&mut world, &mut members, primitives, &mut traffic);
    let survivors: Vec<u16> = (1..=n).filter(|index| index % 10 != 5).collect();
    let uploads = inputs(&phase, &dealt, &mut members, &survivors, primitives, &mut traffic);
    rest(phase, &mut members, &uploads, primitives, &mut traffic);
    traffic.print();
}

/// Bytes of one participant's messages, by phase: up, down.
#[derive(Default)]
struct Traffic(Vec<(&'static str, usize, usize)>);

impl Traffic {
    fn print(&self) {
        println!("  bytes of a participant          up       down");
        for (phase, up, down) in &self.0 {
            println!("    {phase:24} {up:9}  {down:9}");
        }
        let (up, down) = self.0.iter().fold((0, 0), |(up, down), row| (up + row.1, down + row.2));
        #[expect(clippy::cast_precision_loss, reason = "a ratio with four decimals")]
        let expansion = (4_000_000 + up) as f64 / 4_000_000.0;
        println!(
            "    {:24} {up:9}  {down:9}  beside a vector up; at d = 10^6, b = 32 up to {expansion:.4} of it",
            "all"
        );
    }
}

fn keys_and_shares(
    world: &mut World,
    members: &mut [Member],
    primitives: &Primitives,
    traffic: &mut Traffic,
) -> (CollectMasked, Dealt) {
    let n = u32::try_from(members.len()).unwrap();
    let phase = open_round(world);
    let ((adverts, advertising), sizes) = {
        let timed = timed(|| members.iter_mut().map(|member| member.advertise(world)).collect::<Vec<_>>());
        let sizes = timed.0[0].encode().len();
        (timed, sizes)
    };
    println!("  participant: advertise          {:9.2} ms  {sizes:9} B up", millis(advertising / n));
    traffic.0.push(("R0 advertise", sizes, 0));
    let (admitted, admitting) =
        timed(|| adverts.into_iter().map(|one| phase.admit(one, &world.registry).unwrap()).collect::<Vec<_>>());
    let (phase, closing) = timed(|| phase.close(admitted).unwrap());

    let mut dealt = Dealt::new();
    let mut dealing = Vec::new();
    for member in members.iter_mut() {
        let Some(Client::ShareKeys(state)) = member.client.take() else { panic!("another state") };
        let roster = phase.roster();
        let (step, time) = timed(|| {
            state.share_keys(roster, &MODEL_HASH, 0, &world.registry, &member.signer, &mut world.rng).unwrap()
        });
        dealing.push(time);
        let shares = member.keep(step, Client::MaskInput);
        dealt.insert(shares.body.sender, shares);
    }
    let dealing = fastest(dealing);
    let (verification, agreement) = (primitives.verification * (n - 1), primitives.agreement * (n - 1));
    println!(
        "  participant: deal shares        {:9.2} ms  {:9} B down (roster), {} B up",
        millis(dealing),
        phase.roster().encode().len(),
        dealt[&1].encode().len()
    );
    println!(
        "               of which verification {:.2}, agreement {:.2}, Shamir, HKDF, AEAD {:.2} ms",
        millis(verification),
        millis(agreement),
        millis(dealing.saturating_sub(verification + agreement))
    );
    traffic.0.push(("R1 deal shares", dealt[&1].encode().len(), phase.roster().encode().len()));
    let stored = dealt.values().cloned().collect::<Vec<_>>();
    let (admitted, sharing) =
        timed(|| stored.into_iter().map(|one| phase.admit(one).unwrap()).collect::<Vec<Admitted<_>>>());
    println!(
        "  coordinator: admit keys {:.1} ms, fix the roster {:.1} ms, admit shares {:.1} ms",
        millis(admitting),
        millis(closing),
        millis(sharing)
    );
    (phase.close(admitted).unwrap(), dealt)
}

fn inputs(
    phase: &CollectMasked,
    dealt: &Dealt,
    members: &mut [Member],
    survivors: &[u16],
    primitives: &Primitives,
    traffic: &mut Traffic,
) -> BTreeMap<u16, MaskedUpload> {
    let (mut delivering, mut opening, mut masking) = (Duration::ZERO, Vec::new(), Vec::new());
    let mut uploads = BTreeMap::new();
    let mut down = 0;
    for index in survivors {
        let member = &mut members[usize::from(*index) - 1];
        let (delivery, time): (Delivery, _) =
            timed(|| phase.delivery(*index, |dealer| sealed(dealt, dealer, *index)).unwrap());
        delivering += time;
        down = delivery.encode().len();
        let Some(Client::MaskInput(state)) = member.client.take() else { panic!("another state") };
        let (received, time) = timed(|| state.receive(&delivery).unwrap());
        opening.push(time);
        let Received::Ready(ready) = received else { panic!("a share does not open") };
        let (model, scalars) = (member.model.clone(), member.scalars.clone());
        let (step, time) = timed(|| ready.mask(model, scalars, &member.signer).unwrap());
        masking.push(time);
        uploads.insert(*index, member.keep(step, Client::CheckConsistency));
    }
    let first = delivery(phase, dealt, survivors[0]);
    let neighbours = dealt[&survivors[0]].body.out.union(&first.incoming).intersection(phase.dealers()).len();
    let message = uploads[&survivors[0]].message.encode().len();
    traffic.0.push(("R2 masked input", message, down));
    println!("  participant: open shares        {:9.2} ms  {down:9} B down", millis(fastest(opening)));
    println!(
        "  participant: keys of {neighbours:4} masks  {:9.2} ms  {message:9} B up beside the vector (agreement {:.2} ms)",
        millis(fastest(masking)),
        millis(primitives.agreement * u32::from(neighbours))
    );
    let words = 1_000_000;
    let (ratio, time) = expansion(usize::from(neighbours) + 1, words, primitives);
    println!("  participant: expand them, d = 10^6 {:6.0} ms  = {ratio:.2} × bare keystream", millis(time));
    println!("  coordinator: deliveries {:.1} ms", millis(delivering));
    uploads
}

/// Applies `masks` masks to `words` words and prints the time, and its ratio to keystream generation alone.
fn expansion(masks: usize, words: usize, primitives: &Primitives) -> (f64, Duration) {
    let mut plan = MaskPlan::new(Plane::Model, words as u64, Modulus::new(32).unwrap()).unwrap();
    let mut rng = rng(3);
    for _ in 0..masks {
        let mut key = [0; 32];
        rng.fill_bytes(&mut key);
        plan.push(MaskSeed::new(&mut key), Sign::Add);
    }
    let mut vector = vec![0; words];
    let ((), time) = timed(|| mask::apply(&plan, 0, black_box(&mut vector)).unwrap());
    #[expect(clippy::cast_precision_loss, reason = "a ratio with two decimals")]
    let bare = plan.keystream_bytes() as f64 * primitives.keystream_byte;
    (time.as_secs_f64() / bare, time)
}

fn rest(
    phase: CollectMasked,
    members: &mut [Member],
    uploads: &BTreeMap<u16, MaskedUpload>,
    primitives: &Primitives,
    traffic: &mut Traffic,
) {
    let count = u32::try_from(uploads.len()).unwrap();
    let messages: Vec<_> = uploads.values().map(|upload| upload.message.clone()).collect();
    let (admitted, masked) = timed(|| messages.into_iter().map(|one| phase.admit(one).unwrap()).collect::<Vec<_>>());
    let phase = phase.close(admitted).unwrap();
    let announcement = phase.announcement();
    let mut signing = Vec::new();
    let mut signed = Vec::new();
    for index in uploads.keys() {
        let (one, time) = timed(|| members[usize::from(*index) - 1].check(&announcement).unwrap());
        signing.push(time);
        signed.push(one);
    }
    let up = signed[0].encode().len();
    traffic.0.push(("R3 consistency", up, announcement.encode().len()));
    println!(
        "  participant: sign survivors     {:9.2} ms  {:9} B down, {up} B up",
        millis(fastest(signing)),
        announcement.encode().len()
    );
    let (admitted, agreeing) = timed(|| signed.into_iter().map(|one| phase.admit(one).unwrap()).collect::<Vec<_>>());
    let phase = phase.close(admitted).unwrap();
    let mut answering = Vec::new();
    let mut answers = Vec::new();
    for index in uploads.keys() {
        let (one, time) = timed(|| members[usize::from(*index) - 1].unmask(phase.agreement()).unwrap());
        answering.push(time);
        answers.push(one);
    }
    println!(
        "  participant: verify, answer     {:9.2} ms  {:9} B down, {} B up",
        millis(fastest(answering)),
        phase.agreement().encode().len(),
        answers[0].encode().len()
    );
    traffic.0.push(("R4 unmask", answers[0].encode().len(), phase.agreement().encode().len()));
    let (admitted, taking) = timed(|| answers.into_iter().map(|one| phase.admit(one).unwrap()).collect::<Vec<_>>());
    println!(
        "  coordinator: admit inputs {:.1} ms, signatures {:.1} ms, answers {:.1} ms",
        millis(masked),
        millis(agreeing),
        millis(taking)
    );
    let (unmasked, opening) = timed(|| phase.close(admitted).unwrap());
    let plan = unmasked.plan(Plane::Model).unwrap();
    let agreements = u32::try_from(plan.len()).unwrap() - count;
    let agreement = primitives.agreement * agreements;
    let words = 100_000;
    let (_, expanding) = expansion(plan.len(), words, primitives);
    #[expect(clippy::cast_precision_loss, reason = "a ratio with two decimals")]
    let keystream = Duration::from_secs_f64((plan.len() * words * 4) as f64 * primitives.keystream_byte);
    println!(
        "  coordinator: open {} masks {:.1} ms (agreement {:.1} ms), expand them at d = 10^5 {:.1} ms (keystream {:.1} ms)",
        plan.len(),
        millis(opening),
        millis(agreement),
        millis(expanding),
        millis(keystream)
    );
    println!(
        "  coordinator: unmask = {:.2} × (keystream + agreement)",
        (opening + expanding).as_secs_f64() / (keystream + agreement).as_secs_f64()
    );
}
