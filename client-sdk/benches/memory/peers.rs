//! The other members of a cohort and the coordinator's phases, in a separate process to keep their memory out of the
//! measurement. They deal real shares and sign the required messages, without training and inputs.
//!
//! Length-prefixed frames are exchanged over standard input and output: first [`Hello`], then the participant's message of each phase,
//! answered by the coordinator's next message.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng as _;
use secure_agg::client::{Client, Setup, advertise_keys};
use secure_agg::codec::Message as _;
use secure_agg::messages::{
    Advertise, Consistency, MaskedInput, MaskedInputBody, Roster, RoundId, ShareKeys, Signed, Unmasking,
    consistency_text,
};
use secure_agg::params::{Policy, SessionConfig};
use secure_agg::server::{CollectKeys, CollectShares};
use secure_agg::{IdentityKey, IdentityRefused, IdentityVerifier, Index, MemorySigner, Signer as _};
use serde::{Deserialize, Serialize};
use wire::ParticipantId;
use wire::participant::SessionTerms;

/// What the other process must know before.
#[derive(Deserialize, Serialize)]
pub(crate) struct Hello {
    pub(crate) task: [u8; 16],
    pub(crate) base: [u8; 32],
    pub(crate) members: u16,
    pub(crate) terms: SessionTerms,
}

/// The measured participant.
pub(crate) const PARTICIPANT: &str = "00000000-0000-0000-0000-00000000000b";

/// One end of the two pipes.
pub(crate) struct Line<R, W>(pub(crate) R, pub(crate) W);

impl<R: Read, W: Write> Line<R, W> {
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.1.write_all(&(bytes.len() as u64).to_le_bytes()).unwrap();
        self.1.write_all(bytes).unwrap();
        self.1.flush().unwrap();
    }

    pub(crate) fn hear(&mut self) -> Vec<u8> {
        let mut length = [0; 8];
        self.0.read_exact(&mut length).unwrap();
        let mut bytes = vec![0; usize::try_from(u64::from_le_bytes(length)).unwrap()];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub(crate) fn ask(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.say(bytes);
        self.hear()
    }
}

/// Whose key each certificate binds, as this process knows without reading them.
#[derive(Default)]
struct Known(BTreeMap<Vec<u8>, IdentityKey>);

impl IdentityVerifier for Known {
    fn verify(&self, client_id: &[u8], _: &[u8]) -> Result<IdentityKey, IdentityRefused> {
        self.0.get(client_id).copied().ok_or(IdentityRefused)
    }
}

struct Peer {
    id: Vec<u8>,
    signer: MemorySigner,
    certificate: Vec<u8>,
    client: Option<Client>,
}

pub(crate) fn run() {
    let mut line = Line(std::io::stdin().lock(), std::io::stdout().lock());
    let hello: Hello = serde_json::from_slice(&line.hear()).unwrap();
    let config = SessionConfig::from(&hello.terms);
    let round = RoundId::new(&hello.task, 1, 1);
    let authority = Authority::new();
    line.say(authority.pem.as_bytes());

    let participant: ParticipantId = PARTICIPANT.parse().unwrap();
    let csr = line.hear();
    line.say(authority.certify(std::str::from_utf8(&csr).unwrap(), participant).as_bytes());

    let mut peers: Vec<Peer> = (1..hello.members).map(|number| authority.peer(number)).collect();
    let mut known = Known::default();
    known.0.extend(peers.iter().map(|peer| (peer.id.clone(), peer.signer.identity())));
    let advertise = Advertise::decode(&line.hear()).unwrap();
    let issuers = wire::certificate::Issuers::from_pem(&authority.pem).unwrap();
    let holder = issuers.read(advertise.body.certificate.as_slice()).unwrap();
    known.0.insert(participant.0.as_bytes().to_vec(), holder.key);

    let sharing = advertise_all(&mut peers, &round, &hello, config, advertise, &known);
    let shares = ShareKeys::decode(&line.ask(&sharing.roster().encode())).unwrap();
    let (me, sid, roster) = (shares.body.sender, shares.body.sid, sharing.roster().clone());
    let mut dealt = deal_all(&mut peers, &roster, &hello.base, &known);
    dealt.insert(me, shares);

    let admitted = dealt.values().cloned().map(|one| sharing.admit(one).unwrap()).collect();
    let collecting = sharing.close(admitted).unwrap();
    let delivery = collecting.delivery(me, |dealer| dealt[&dealer].body.sealed_for(me).copied()).unwrap();
    let input = MaskedInput::decode(&line.ask(&delivery.encode())).unwrap();

    let position = |peer: &Peer| at(&roster, &peer.id);
    let inputs = peers.iter().map(|peer| {
        let (sender, out) = (position(peer), dealt[&position(peer)].body.out.clone());
        Signed::sign(MaskedInputBody { sender, out, ..input.body.clone() }, &peer.signer).unwrap()
    });
    let inputs = inputs.chain([input.clone()]).map(|one| collecting.admit(one).unwrap()).collect();
    let dealers = collecting.dealers().clone();
    let confirming = collecting.close(inputs).unwrap();
    let announced = confirming.announcement();
    let confirmed = Consistency::decode(&line.ask(&announced.encode())).unwrap();

    let text = consistency_text(&sid, &dealers, &announced.survivors);
    let signed = peers.iter().map(|peer| Consistency {
        sid,
        sender: position(peer),
        signature: peer.signer.sign(&text).unwrap(),
    });
    let signed = signed.chain([confirmed]).map(|one| confirming.admit(one).unwrap()).collect();
    let unmasking = confirming.close(signed).unwrap();
    unmasking.admit(Unmasking::decode(&line.ask(&unmasking.agreement().encode())).unwrap()).unwrap();
    line.say(b"taken");
}

fn at(roster: &Roster, id: &[u8]) -> Index {
    let place = roster.entries.iter().position(|entry| entry.client_id.as_slice() == id).unwrap();
    Index::try_from(place + 1).unwrap()
}

fn advertise_all(
    peers: &mut [Peer],
    round: &RoundId,
    hello: &Hello,
    config: SessionConfig,
    advertise: Advertise,
    known: &Known,
) -> CollectShares {
    let policy = Policy { min_cohort: 3, min_tolerated_corrupt: 0, min_tolerated_colluders: 0, min_included: 0 };
    let keys = CollectKeys::new(round.clone(), hello.base, config.clone()).unwrap();
    let mut admitted = vec![keys.admit(advertise, known).unwrap()];
    let mut rng = ChaCha20Rng::seed_from_u64(1);
    for peer in peers {
        let (client_id, certificate) = (peer.id.clone(), peer.certificate.clone());
        let setup = Setup { round: round.clone(), client_id, certificate, config: config.clone(), policy, batch: None };
        let step = advertise_keys(setup, &peer.signer, &mut rng).unwrap();
        peer.client = Some(Client::ShareKeys(step.next));
        admitted.push(keys.admit(step.send, known).unwrap());
    }
    keys.close(admitted).unwrap()
}

/// Deals the shares of all peers on all cores.
fn deal_all(peers: &mut [Peer], roster: &Roster, base: &[u8; 32], known: &Known) -> BTreeMap<Index, ShareKeys> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let deal = |peers: &mut [Peer], seed: u64| {
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let dealt = peers.iter_mut().map(|peer| {
            let Some(Client::ShareKeys(state)) = peer.client.take() else { panic!("it has advertised") };
            state.share_keys(roster, base, 0, known, &peer.signer, &mut rng).unwrap().send
        });
        dealt.collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let parts = peers.chunks_mut(peers.len().div_ceil(threads)).zip(2..);
        let running: Vec<_> = parts.map(|(part, seed)| scope.spawn(move || deal(part, seed))).collect();
        let dealt = running.into_iter().flat_map(|one| one.join().unwrap());
        dealt.map(|shares| (shares.body.sender, shares)).collect()
    })
}

/// Certifies members.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: rcgen::Issuer::new(params, key), pem }
    }

    fn certify(&self, csr_pem: &str, participant: ParticipantId) -> String {
        let mut csr = rcgen::CertificateSigningRequestParams::from_pem(csr_pem).unwrap();
        csr.params.subject_alt_names = vec![name(participant)];
        csr.signed_by(&self.issuer).unwrap().pem()
    }

    fn peer(&self, number: u16) -> Peer {
        let participant: ParticipantId = format!("00000000-0000-0000-0001-{number:012}").parse().unwrap();
        let mut seed = [7; 32];
        seed[..2].copy_from_slice(&number.to_le_bytes());
        // PKCS #8 around a seed of Ed25519 (RFC 8410 §7).
        let prefix = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        let der = rustls_pki_types::PrivatePkcs8KeyDer::from([&prefix[..], &seed].concat());
        let key = rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&der, &rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::new(vec![]).unwrap();
        params.subject_alt_names = vec![name(participant)];
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        let signer = MemorySigner::from_seed(&seed).unwrap();
        Peer { id: participant.0.as_bytes().to_vec(), signer, certificate, client: None }
    }
}

fn name(participant: ParticipantId) -> rcgen::SanType {
    let urn = format!("{}{participant}", wire::certificate::PARTICIPANT_URN);
    rcgen::SanType::URI(urn.as_str().try_into().unwrap())
}
