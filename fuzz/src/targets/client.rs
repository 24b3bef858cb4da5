//! Messages of a dishonest coordinator to a participant in each of its states. The first byte selects the state, and
//! whether the signatures in the message are recomputed, as colluders could.

use secure_agg::client::{Client, Received};
use secure_agg::codec::Message;
use secure_agg::messages::{Agreement, Delivery, Roster, RosterEntry, ShareKeys, Signed, Survivors, consistency_text};
use secure_agg::{MemorySigner, Signer as _};

use super::session::{Session, five, sparse};
use super::support::rng;

const ROSTER: u8 = 0;
const DELIVERY: u8 = 1;
const EVIDENCE: u8 = 2;
const SURVIVORS: u8 = 3;
const AGREEMENT: u8 = 4;
const SPARSE_SURVIVORS: u8 = 5;
const RESIGN: u8 = 0x80;

pub fn run(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    let resign = which & RESIGN != 0;
    match (which & !RESIGN) % 6 {
        ROSTER => roster(data, resign),
        DELIVERY => delivery(data),
        EVIDENCE => evidence(data, resign),
        SURVIVORS => survivors(five(), data),
        AGREEMENT => agreement(data, resign),
        _ => survivors(sparse(), data),
    }
}

fn client(session: &Session, state: usize) -> Client {
    Client::restore(&session.kept[state]).expect("an honest snapshot")
}

fn signer(session: &Session, index: u16) -> Option<&MemorySigner> {
    session.members.get(usize::from(index.checked_sub(1)?)).map(|member| &member.signer)
}

fn roster(data: &[u8], resign: bool) {
    let Ok(mut roster) = Roster::decode(data) else { return };
    let session = five();
    if resign {
        let mut entries = roster.entries.as_slice().to_vec();
        for entry in entries.iter_mut().skip(1) {
            let owner = session.members.iter().find(|member| member.id == entry.client_id.as_slice());
            if let (Some(owner), advertise) = (owner, entry.advertise(&roster.round)) {
                *entry = RosterEntry::of(&Signed::sign(advertise.body, &owner.signer).unwrap());
            }
        }
        roster.entries = entries.into();
    }
    let Client::ShareKeys(state) = client(session, 0) else { panic!("another state") };
    let (registry, signer) = (&session.world.registry, &session.members[0].signer);
    if let Ok(step) = state.share_keys(&roster, &session.roster.model_hash, 0, registry, signer, &mut rng(1)) {
        assert_eq!((&roster.round, &roster.config), (&session.roster.round, &session.roster.config));
        assert_eq!(roster.model_hash, session.roster.model_hash);
        assert!(roster.entries.as_slice().contains(&session.roster.entries.as_slice()[0]), "its own keys are in it");
        let params = roster.config.params(u16::try_from(roster.entries.len()).unwrap()).unwrap();
        assert_eq!(step.send.body.out.len(), params.out_degree());
        assert_eq!(Client::restore(step.persist.expose()).unwrap().resend(), step.send.encode());
    }
}

fn delivery(data: &[u8]) {
    let Ok(delivery) = Delivery::decode(data) else { return };
    let session = five();
    let Client::MaskInput(state) = client(session, 1) else { panic!("another state") };
    match state.receive(&delivery) {
        Ok(Received::Ready(state)) => {
            assert!(delivery.dealers.len() >= session.roster.threshold && delivery.dealers.contains(1));
            let member = &session.members[0];
            let step = state.mask(member.model.clone(), member.scalars.clone(), &member.signer).unwrap();
            assert_ne!(step.send.body[..16], packed(&member.model)[..16], "nothing leaves unmasked");
            assert_eq!(Client::restore(step.persist.expose()).unwrap().resend(), step.send.message.encode());
        }
        Ok(Received::Challenge(challenge)) => {
            // An honest dealer's evidence never makes the participant reveal a key.
            let dealer = challenge.dealer();
            assert!(challenge.complain(&session.dealt[&dealer], &session.members[0].signer).is_err());
        }
        Err(_) => {}
    }
}

fn packed(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn evidence(data: &[u8], resign: bool) {
    let Ok(mut evidence) = ShareKeys::decode(data) else { return };
    let session = five();
    let mut bent = session.delivery.clone();
    let mut sealed = bent.sealed.as_slice().to_vec();
    sealed[0][0] ^= 1;
    bent.sealed = sealed.into();
    if resign && let Some(signer) = signer(session, evidence.body.sender) {
        evidence = Signed::sign(evidence.body, signer).unwrap();
    }
    let Client::MaskInput(state) = client(session, 1) else { panic!("another state") };
    let Ok(Received::Challenge(challenge)) = state.receive(&bent) else { panic!("a bent share opened") };
    let dealer = challenge.dealer();
    if let Ok(step) = challenge.complain(&evidence, &session.members[0].signer) {
        assert!(resign && evidence.body.sender == dealer, "a key was revealed for what the dealer never signed");
        assert_ne!(evidence.body.sealed_for(1), session.dealt[&dealer].body.sealed_for(1));
        assert_eq!(Client::restore(step.persist.expose()).unwrap().resend(), step.send.encode());
    }
}

fn survivors(session: &Session, data: &[u8]) {
    let Ok(survivors) = Survivors::decode(data) else { return };
    let Client::CheckConsistency(state) = client(session, 2) else { panic!("another state") };
    if let Ok(step) = state.check(&survivors, &session.members[0].signer) {
        let set = &survivors.survivors;
        assert!(
            set.contains(1)
                && set.len() >= session.roster.threshold
                && set.universe() == session.roster.entries.len() as u16
        );
        for input in survivors.inputs.iter() {
            assert!(input.out.intersection(set).len() >= session.roster.min_out, "somebody is left alone");
        }
        assert_eq!(Client::restore(step.persist.expose()).unwrap().resend(), step.send.encode());
    }
}

fn agreement(data: &[u8], resign: bool) {
    let Ok(mut agreement) = Agreement::decode(data) else { return };
    let session = five();
    if resign {
        let text = consistency_text(&agreement.sid, &session.delivery.dealers, &session.survivors.survivors);
        let mut signatures = agreement.signatures.as_slice().to_vec();
        for entry in &mut signatures {
            if let Some(signer) = signer(session, entry.signer) {
                entry.signature = signer.sign(&text).unwrap();
            }
        }
        agreement.signatures = signatures.into();
    }
    let Client::Unmask(state) = client(session, 3) else { panic!("another state") };
    if let Ok(step) = state.unmask(&agreement, &session.members[0].signer) {
        let mut signers: Vec<u16> = agreement.signatures.iter().map(|one| one.signer).collect();
        signers.sort_unstable();
        signers.dedup();
        assert!(signers.len() >= usize::from(session.roster.threshold));
        assert_eq!(step.send, session.answers[0], "whoever agreed, it says the one thing it can say");
    }
}

/// The honest message of each state, unchanged and to be signed again.
pub fn seeds() -> Vec<Vec<u8>> {
    let session = five();
    let messages: [(u8, Vec<u8>); 6] = [
        (ROSTER, session.roster.encode()),
        (DELIVERY, session.delivery.encode()),
        (EVIDENCE, session.dealt[&2].encode()),
        (SURVIVORS, session.survivors.encode()),
        (AGREEMENT, session.agreement.encode()),
        (SPARSE_SURVIVORS, sparse().survivors.encode()),
    ];
    messages
        .iter()
        .flat_map(|(which, bytes)| [*which, which | RESIGN].map(|which| [&[which], bytes.as_slice()].concat()))
        .collect()
}
