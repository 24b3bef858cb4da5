//! A cohort in memory: every message goes through bytes, and every state may go through a snapshot.
#![allow(dead_code, reason = "each test file uses its own part of this module")]
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};
use secure_agg::client::{Challenge, Client, MaskedUpload, Received, Setup, Transition, advertise_keys};
use secure_agg::codec::Message;
use secure_agg::mask::{self, Plane};
use secure_agg::messages::{
    Advertise, Agreement, Body, Complaint, Consistency, Delivery, Roster, RoundId, SealedShares, ShareKeys, Signed,
    Survivors, Unmasking,
};
use secure_agg::params::{Policy, SessionConfig, VectorShape};
use secure_agg::rejection::{Abort, Refusal};
use secure_agg::server::{
    Admitted, CollectConsistency, CollectKeys, CollectMasked, CollectShares, CollectUnmasking, Enrolled, Phase,
    Unmasked,
};
use secure_agg::{
    IdentityKey, IdentityRefused, IdentityVerifier, Index, MemorySigner, SUITE_CHACHA20, Signer as _, modular, packing,
};

pub(crate) const MODEL_HASH: [u8; 32] = [0x4d; 32];
pub(crate) const FLOORS: Policy =
    Policy { min_cohort: 3, min_tolerated_corrupt: 0, min_tolerated_colluders: 0, min_included: 0 };

pub(crate) fn rng(seed: u64) -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(seed)
}

pub(crate) fn wire<M: Message>(message: &M) -> M {
    M::decode(&message.encode()).unwrap()
}

/// A configuration for exactly `n` advertising participants, with the largest dropout fraction that the threshold allows.
pub(crate) fn config(n: u16, model_words: u64) -> SessionConfig {
    let mut config = SessionConfig {
        suite: SUITE_CHACHA20,
        min_cohort: 3,
        max_cohort: n.max(3),
        max_corrupt: 100_000,
        max_dropout: 0,
        min_included: 0,
        model: VectorShape { words: model_words, modulus_bits: 32, input_bound: 1 << 20, noise_margin: 0 },
        scalars: VectorShape { words: 2, modulus_bits: 24, input_bound: 1000, noise_margin: 0 },
        application: [0xa9; 32],
    };
    if n > 1000 {
        config.model.input_bound = 1 << 19;
    }
    config
}

/// Certificates are `cert:` and the id; the registry maps each to its key.
#[derive(Default)]
pub(crate) struct Registry(pub(crate) BTreeMap<Vec<u8>, IdentityKey>);

impl IdentityVerifier for Registry {
    fn verify(&self, client_id: &[u8], certificate: &[u8]) -> Result<IdentityKey, IdentityRefused> {
        let known = self.0.get(client_id).ok_or(IdentityRefused)?;
        if certificate == certificate_of(client_id) { Ok(*known) } else { Err(IdentityRefused) }
    }
}

pub(crate) fn certificate_of(client_id: &[u8]) -> Vec<u8> {
    [b"cert:", client_id].concat()
}

/// One participant and its input.
pub(crate) struct Member {
    pub(crate) id: Vec<u8>,
    pub(crate) signer: MemorySigner,
    pub(crate) client: Option<Client>,
    pub(crate) snapshot: Vec<u8>,
    pub(crate) model: Vec<u32>,
    pub(crate) scalars: Vec<u32>,
    /// Whether the state goes through its snapshot after every step.
    pub(crate) restarts: bool,
    /// The fixed batch that the member states, and the batch size that it requires of all members.
    pub(crate) batch: Option<[u8; 32]>,
    pub(crate) min_batch: u16,
}

pub(crate) enum Sent {
    Upload(Box<MaskedUpload>),
    Challenge(Box<Challenge>),
}

impl Member {
    pub(crate) fn setup(&self, world: &World) -> Setup {
        Setup {
            round: world.round.clone(),
            client_id: self.id.clone(),
            certificate: certificate_of(&self.id),
            config: world.config.clone(),
            policy: FLOORS,
            batch: self.batch,
        }
    }

    pub(crate) fn keep<N, M>(&mut self, step: Transition<N, M>, state: fn(N) -> Client) -> M {
        self.snapshot = step.persist.expose().to_vec();
        self.client = Some(if self.restarts { Client::restore(&self.snapshot).unwrap() } else { state(step.next) });
        step.send
    }

    /// Stores the state and sends the message through bytes. A participant killed in between sends the same bytes.
    fn say<N, M: Message>(&mut self, step: Transition<N, M>, state: fn(N) -> Client) -> M {
        let message = self.keep(step, state);
        if self.restarts {
            assert_eq!(self.client.as_ref().unwrap().resend(), message.encode());
        }
        wire(&message)
    }

    pub(crate) fn restore(&mut self) {
        self.client = Some(Client::restore(&self.snapshot).unwrap());
    }

    pub(crate) fn advertise(&mut self, world: &mut World) -> Advertise {
        let step = advertise_keys(self.setup(world), &self.signer, &mut world.rng).unwrap();
        self.say(step, Client::ShareKeys)
    }

    pub(crate) fn share(&mut self, world: &mut World, roster: &Roster) -> Result<ShareKeys, Refusal> {
        self.share_for(world, roster, &MODEL_HASH)
    }

    pub(crate) fn share_for(
        &mut self,
        world: &mut World,
        roster: &Roster,
        model: &[u8; 32],
    ) -> Result<ShareKeys, Refusal> {
        let state = self.client.take().ok_or(Refusal::OutOfOrder)?.waiting_for_roster()?;
        let step =
            state.share_keys(&wire(roster), model, self.min_batch, &world.registry, &self.signer, &mut world.rng)?;
        Ok(self.say(step, Client::MaskInput))
    }

    pub(crate) fn mask(&mut self, delivery: &Delivery) -> Result<Sent, Refusal> {
        let state = self.client.take().ok_or(Refusal::OutOfOrder)?.waiting_for_delivery()?;
        match state.receive(&wire(delivery))? {
            Received::Ready(masking) => {
                let step = masking.mask(self.model.clone(), self.scalars.clone(), &self.signer)?;
                Ok(Sent::Upload(Box::new(self.keep(step, Client::CheckConsistency))))
            }
            Received::Challenge(challenge) => Ok(Sent::Challenge(challenge)),
        }
    }

    /// Complains about a delivery that must raise a challenge, with the evidence at hand.
    pub(crate) fn complain(&mut self, delivery: &Delivery, evidence: &ShareKeys) -> Result<Complaint, Refusal> {
        let Sent::Challenge(challenge) = self.mask(delivery)? else { panic!("every share opened") };
        let step = challenge.complain(evidence, &self.signer)?;
        Ok(self.say(step, Client::Complained))
    }

    pub(crate) fn upload(&mut self, delivery: &Delivery) -> MaskedUpload {
        match self.mask(delivery).unwrap() {
            Sent::Upload(upload) => *upload,
            Sent::Challenge(challenge) => panic!("the share of {} does not open", challenge.dealer()),
        }
    }

    pub(crate) fn check(&mut self, survivors: &Survivors) -> Result<Consistency, Refusal> {
        let state = self.client.take().ok_or(Refusal::OutOfOrder)?.waiting_for_survivors()?;
        let step = state.check(&wire(survivors), &self.signer)?;
        Ok(self.say(step, Client::Unmask))
    }

    pub(crate) fn unmask(&mut self, agreement: &Agreement) -> Result<Unmasking, Refusal> {
        let state = self.client.take().ok_or(Refusal::OutOfOrder)?.waiting_for_agreement()?;
        let step = state.unmask(&wire(agreement), &self.signer)?;
        Ok(self.say(step, Client::Answered))
    }
}

/// All data outside the participants.
pub(crate) struct World {
    pub(crate) registry: Registry,
    pub(crate) config: SessionConfig,
    pub(crate) round: RoundId,
    pub(crate) rng: ChaCha20Rng,
}

/// A world and `n` members with random inputs, in roster order.
pub(crate) fn cohort(n: u16, config: SessionConfig, seed: u64) -> (World, Vec<Member>) {
    let mut rng = rng(seed);
    let mut registry = Registry::default();
    let members = (1..=n)
        .map(|index| {
            let id = format!("client-{index:04}").into_bytes();
            let mut key = [0; 32];
            rng.fill_bytes(&mut key);
            let signer = MemorySigner::from_seed(&key).unwrap();
            registry.0.insert(id.clone(), signer.identity());
            let model = random_words(&config.model, &mut rng);
            let scalars = random_words(&config.scalars, &mut rng);
            Member {
                id,
                signer,
                client: None,
                snapshot: Vec::new(),
                model,
                scalars,
                restarts: false,
                batch: None,
                min_batch: 0,
            }
        })
        .collect();
    (World { registry, config, round: RoundId::new(b"task-1", 7, 0), rng }, members)
}

fn random_words(shape: &VectorShape, rng: &mut ChaCha20Rng) -> Vec<u32> {
    let (modulus, bound) = (shape.modulus().unwrap(), i64::try_from(shape.input_bound).unwrap());
    let word = |rng: &mut ChaCha20Rng| i64::try_from(rng.next_u64() >> 1).unwrap() % (2 * bound + 1) - bound;
    (0..shape.words).map(|_| modulus.wrap(word(rng))).collect()
}

pub(crate) fn open_round(world: &World) -> CollectKeys {
    CollectKeys::new(world.round.clone(), MODEL_HASH, world.config.clone()).unwrap()
}

/// All keys, and the phase that collects shares.
pub(crate) fn advertised(world: &mut World, members: &mut [Member]) -> CollectShares {
    let phase = open_round(world);
    let admitted: Vec<Admitted<Enrolled>> =
        members.iter_mut().map(|member| phase.admit(member.advertise(world), &world.registry).unwrap()).collect();
    phase.close(admitted).unwrap()
}

/// Dealt shares, by dealer.
pub(crate) type Dealt = BTreeMap<Index, ShareKeys>;

/// All shares, and the phase that collects inputs.
pub(crate) fn shared(world: &mut World, members: &mut [Member]) -> (CollectMasked, Dealt) {
    let phase = advertised(world, members);
    let mut dealt = Dealt::new();
    for member in members {
        let shares = member.share(world, phase.roster()).unwrap();
        dealt.insert(shares.body.sender, phase.admit(shares).unwrap().into_message());
    }
    let admitted = dealt.values().cloned().map(Admitted::from_store).collect();
    (phase.close(admitted).unwrap(), dealt)
}

pub(crate) fn sealed(dealt: &Dealt, dealer: Index, holder: Index) -> Option<SealedShares> {
    dealt.get(&dealer)?.body.sealed_for(holder).copied()
}

pub(crate) fn delivery(phase: &CollectMasked, dealt: &Dealt, to: Index) -> Delivery {
    phase.delivery(to, |dealer| sealed(dealt, dealer, to)).unwrap()
}

/// Uploads by sender, and the phase that collects signatures. `arrives` decides whose input arrives.
pub(crate) fn masked(
    phase: CollectMasked,
    dealt: &Dealt,
    members: &mut [Member],
    arrives: impl Fn(Index) -> bool,
) -> (CollectConsistency, BTreeMap<Index, MaskedUpload>) {
    let mut uploads = BTreeMap::new();
    for (index, member) in (1..).zip(members.iter_mut()) {
        uploads.insert(index, member.upload(&delivery(&phase, dealt, index)));
    }
    uploads.retain(|index, _| arrives(*index));
    let admitted = uploads.values().map(|upload| phase.admit(wire(&upload.message)).unwrap()).collect();
    (phase.close(admitted).unwrap(), uploads)
}

/// Signatures of the survivors.
pub(crate) fn agreed(phase: CollectConsistency, members: &mut [Member]) -> CollectUnmasking {
    let announcement = phase.announcement();
    let admitted = phase
        .survivors()
        .iter()
        .map(|index| phase.admit(members[usize::from(index) - 1].check(&announcement).unwrap()).unwrap())
        .collect();
    phase.close(admitted).unwrap()
}

/// Shares of the signers.
pub(crate) fn answered(phase: &CollectUnmasking, members: &mut [Member]) -> Vec<Admitted<Unmasking>> {
    let agreement = phase.agreement();
    phase
        .signers()
        .iter()
        .map(|index| phase.admit(members[usize::from(index) - 1].unmask(agreement).unwrap()).unwrap())
        .collect()
}

/// The sum that the session releases, one vector per plane.
pub(crate) fn unmasked_sum(
    config: &SessionConfig,
    unmasked: &Unmasked,
    uploads: &BTreeMap<Index, MaskedUpload>,
) -> [Vec<u32>; 2] {
    let lengths = [config.model, config.scalars].map(|shape| usize::try_from(shape.words).unwrap());
    let mut sums = lengths.map(|len| vec![0; len]);
    for index in unmasked.survivors().iter() {
        let mut body = uploads[&index].body.as_slice();
        for ((shape, len), sum) in [config.model, config.scalars].iter().zip(lengths).zip(&mut sums) {
            let modulus = shape.modulus().unwrap();
            let (own, rest) = body.split_at(packing::packed_len(len, modulus));
            modular::add_assign(sum, &packing::unpack(own, len, modulus).unwrap());
            body = rest;
        }
        assert!(body.is_empty());
    }
    for (plane, sum) in [Plane::Model, Plane::Scalars].into_iter().zip(&mut sums) {
        mask::apply(&unmasked.plan(plane).unwrap(), 0, sum).unwrap();
    }
    sums
}

/// The plain sum of the survivors' inputs.
pub(crate) fn plain_sum(
    config: &SessionConfig,
    members: &[Member],
    survivors: impl Iterator<Item = Index>,
) -> [Vec<u32>; 2] {
    let mut sums = [config.model, config.scalars].map(|shape| vec![0; usize::try_from(shape.words).unwrap()]);
    for index in survivors {
        let member = &members[usize::from(index) - 1];
        modular::add_assign(&mut sums[0], &member.model);
        modular::add_assign(&mut sums[1], &member.scalars);
    }
    modular::reduce(&mut sums[0], config.model.modulus().unwrap());
    modular::reduce(&mut sums[1], config.scalars.modulus().unwrap());
    sums
}

/// A phase after its coordinator was killed.
pub(crate) fn resumed(phase: Phase) -> Phase {
    Phase::restore(&phase.encode()).unwrap()
}

/// The phase at which a participant stops: 0 sends no keys, 1 no shares, 2 no input, 3 no signature, 4 no answer, 5 never.
pub(crate) type DropsAt = u8;

/// The course of a whole session.
#[derive(Debug, Clone)]
pub(crate) struct Course {
    pub(crate) drops: Vec<DropsAt>,
    pub(crate) restarts: bool,
    pub(crate) replays: bool,
    pub(crate) shuffles: bool,
}

/// The coordinator's view, for secrecy checks.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) participants: u16,
    pub(crate) threshold: u16,
    pub(crate) corrupt: u16,
    /// Both shares of every dealer, by holder: only the holder has them when the survivors are announced.
    pub(crate) held: BTreeMap<Index, Vec<[[u8; 32]; 2]>>,
    pub(crate) dealers: Option<secure_agg::IndexSet>,
    pub(crate) survivors: Option<secure_agg::IndexSet>,
    pub(crate) answers: Vec<Unmasking>,
}

fn order<M: Clone>(course: &Course, rng: &mut ChaCha20Rng, mut admitted: Vec<Admitted<M>>) -> Vec<Admitted<M>> {
    if course.replays {
        let again: Vec<Admitted<M>> = admitted.clone();
        admitted.extend(again);
    }
    if course.shuffles {
        for last in (1..admitted.len()).rev() {
            let other = usize::try_from(rng.next_u64() % (last as u64 + 1)).unwrap();
            admitted.swap(last, other);
        }
    }
    admitted
}

/// Runs a session to its end. Members that refuse to continue are treated as dropped; the participating members follow from their drops.
pub(crate) fn run(
    world: &mut World,
    members: &mut [Member],
    course: &Course,
    seen: &mut Seen,
) -> Result<(Unmasked, [Vec<u32>; 2]), Abort> {
    for member in members.iter_mut() {
        member.restarts = course.restarts;
    }
    let (phase, dealt, by_index) = run_to_shares(world, members, course, seen)?;
    let (phase, uploads) = run_to_inputs(world, members, course, seen, phase, &dealt, &by_index)?;

    let mut admitted = Vec::new();
    for index in phase.survivors().iter() {
        let i = by_index[&index];
        seen.held.insert(index, held_shares(&members[i].snapshot));
        if course.drops[i] > 3
            && let Ok(consistency) = members[i].check(&phase.announcement())
        {
            admitted.push(phase.admit(consistency).unwrap());
        }
    }
    let phase = phase.close(order(course, &mut world.rng, admitted))?;
    let Phase::CollectUnmasking(phase) = resumed(Phase::CollectUnmasking(phase)) else { panic!("another phase") };

    let mut admitted = Vec::new();
    for index in phase.signers().iter() {
        let i = by_index[&index];
        if course.drops[i] > 4
            && let Ok(unmasking) = members[i].unmask(phase.agreement())
        {
            seen.answers.push(unmasking.clone());
            admitted.push(phase.admit(unmasking).unwrap());
        }
    }
    let unmasked = phase.close(order(course, &mut world.rng, admitted))?;
    let sums = unmasked_sum(&world.config, &unmasked, &uploads);
    Ok((unmasked, sums))
}

/// The member at each position of the roster.
type Places = BTreeMap<Index, usize>;

/// R0 and R1.
fn run_to_shares(
    world: &mut World,
    members: &mut [Member],
    course: &Course,
    seen: &mut Seen,
) -> Result<(CollectMasked, Dealt, Places), Abort> {
    let phase = open_round(world);
    let alive = |at: DropsAt| (0..course.drops.len()).filter(move |i| course.drops[*i] > at);
    let mut admitted = Vec::new();
    for i in alive(0) {
        admitted.push(phase.admit(members[i].advertise(world), &world.registry).unwrap());
    }
    let phase = phase.close(order(course, &mut world.rng, admitted))?;
    let Phase::CollectShares(phase) = resumed(Phase::CollectShares(phase)) else { panic!("another phase") };
    seen.participants = phase.params().participants();
    seen.threshold = phase.params().threshold();
    seen.corrupt = seen.participants * u16::try_from(world.config.max_corrupt / 1000).unwrap() / 1000;

    let mut dealt = Dealt::new();
    let mut admitted = Vec::new();
    let mut by_index = BTreeMap::new();
    for i in alive(1) {
        let Ok(shares) = members[i].share(world, phase.roster()) else { continue };
        by_index.insert(shares.body.sender, i);
        dealt.insert(shares.body.sender, shares.clone());
        admitted.push(phase.admit(shares).unwrap());
    }
    let phase = phase.close(order(course, &mut world.rng, admitted))?;
    let Phase::CollectMasked(phase) = resumed(Phase::CollectMasked(phase)) else { panic!("another phase") };
    seen.dealers = Some(phase.dealers().clone());
    Ok((phase, dealt, by_index))
}

/// R2.
fn run_to_inputs(
    world: &mut World,
    members: &mut [Member],
    course: &Course,
    seen: &mut Seen,
    phase: CollectMasked,
    dealt: &Dealt,
    by_index: &Places,
) -> Result<(CollectConsistency, BTreeMap<Index, MaskedUpload>), Abort> {
    let mut uploads = BTreeMap::new();
    let mut admitted = Vec::new();
    for (index, i) in by_index {
        if course.drops[*i] > 2
            && let Ok(Sent::Upload(upload)) = members[*i].mask(&delivery(&phase, dealt, *index))
        {
            admitted.push(phase.admit(wire(&upload.message)).unwrap());
            uploads.insert(*index, *upload);
        }
    }
    let phase = phase.close(order(course, &mut world.rng, admitted))?;
    let Phase::CollectConsistency(phase) = resumed(Phase::CollectConsistency(phase)) else { panic!("another phase") };
    seen.survivors = Some(phase.survivors().clone());
    Ok((phase, uploads))
}

/// The parts of a snapshot: each behind its length, after two bytes of header.
pub(crate) fn parts(snapshot: &[u8]) -> Vec<&[u8]> {
    let mut rest = &snapshot[2..];
    let mut parts = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let (part, after) = after.split_at(u32::from_be_bytes(*len) as usize);
        parts.push(part);
        rest = after;
    }
    parts
}

/// Both shares of every dealer, from the snapshot of a participant that has sent its input: of the mask seed, of the self-mask seed.
pub(crate) fn held_shares(snapshot: &[u8]) -> Vec<[[u8; 32]; 2]> {
    assert_eq!(snapshot[1], 3, "a snapshot of CheckConsistency");
    // The second format stores the session's batches after its facts.
    let (pairs, _) = parts(snapshot)[usize::from(snapshot[0]) + 2].as_chunks::<64>();
    pairs.iter().map(|pair| [pair[..32].try_into().unwrap(), pair[32..].try_into().unwrap()]).collect()
}

/// The snapshot with one part replaced, as restored by a participant that tampers with itself.
pub(crate) fn with_part(snapshot: &[u8], number: usize, part: &[u8]) -> Vec<u8> {
    let mut forged = snapshot[..2].to_vec();
    for (position, old) in parts(snapshot).into_iter().enumerate() {
        let part = if position == number { part } else { old };
        forged.extend(u32::try_from(part.len()).unwrap().to_be_bytes());
        forged.extend(part);
    }
    forged
}

/// The same body, signed again after a change.
pub(crate) fn resigned<B: Body>(body: B, signer: &MemorySigner) -> Signed<B> {
    Signed::sign(body, signer).unwrap()
}
