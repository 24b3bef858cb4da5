//! Messages of a dishonest participant to the coordinator in each phase. The first byte selects the phase, and whether the message is
//! signed again by its sender. A phase can be closed with its admitted messages; an opened sum is that of the survivors.

use secure_agg::MemorySigner;
use secure_agg::Signer as _;
use secure_agg::codec::Message;
use secure_agg::messages::{
    Advertise, Complaint, Consistency, InSession, MaskedInput, ShareKeys, Signed, Unmasking, consistency_text,
};
use secure_agg::rejection::Abort;
use secure_agg::server::{Admitted, CollectUnmasking, Phase};

use super::session::{Session, five};
use super::support::unmasked_sum;

const COMPLAINT: u8 = 5;
const RESIGN: u8 = 0x80;

pub fn run(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    let (session, resign) = (five(), which & RESIGN != 0);
    let which = (which & !RESIGN) % 6;
    let stored = usize::from(if which == COMPLAINT { 2 } else { which });
    match Phase::restore(&session.phases[stored]).expect("an honest phase") {
        Phase::CollectKeys(phase) => {
            let Ok(mut advert) = Advertise::decode(data) else { return };
            if resign && let Some(owner) = session.members.iter().find(|m| m.id == advert.body.client_id.as_slice()) {
                advert = Signed::sign(advert.body, &owner.signer).unwrap();
            }
            if let Ok(admitted) = phase.admit(advert, &session.world.registry) {
                let id = admitted.message().advertise.body.client_id.clone();
                let others = session.enrolled.iter().filter(|one| one.advertise.body.client_id != id);
                let keys = [admitted.message().advertise.body.c_pk, admitted.message().advertise.body.s_pk];
                let known: Vec<[u8; 32]> = session.enrolled.iter().map(|one| one.identity.0).collect();
                let (mut all, place) =
                    (others.cloned().map(Admitted::from_store).collect::<Vec<_>>(), place(session, id.as_slice()));
                all.push(admitted);
                match phase.close(all) {
                    Ok(_) => {}
                    Err(Abort::RepeatedKey { first, second }) if keys.iter().any(|key| known.contains(key)) => {
                        assert!(second == place && first != place, "nobody gets another thrown out");
                    }
                    // Another participant's agreement key is secret until the roster is published, but the corpus
                    // contains it.
                    Err(Abort::RepeatedKey { first, second }) => assert!(first == place || second == place),
                    Err(other) => panic!("one participant alone ended the session: {other}"),
                }
            }
        }
        Phase::CollectShares(phase) => {
            let Some(shares) = signed(session, ShareKeys::decode(data), resign) else { return };
            if let Ok(admitted) = phase.admit(shares) {
                let sender = admitted.message().body.sender;
                let others = session.dealt.values().filter(|one| one.body.sender != sender);
                let all = others.cloned().map(Admitted::from_store).chain([admitted]).collect();
                let next = phase.close(all).expect("everybody dealt");
                assert!(next.delivery(1, |_| Some([0; 80])).is_some());
            }
        }
        Phase::CollectMasked(phase) if which == COMPLAINT => {
            let Some(complaint) = signed(session, Complaint::decode(data), resign) else { return };
            if let Some(shares) = session.dealt.get(&complaint.body.accused) {
                let _ = phase.judge(&complaint, shares);
            }
        }
        Phase::CollectMasked(phase) => {
            let Some(input) = signed(session, MaskedInput::decode(data), resign) else { return };
            if let Ok(admitted) = phase.admit(input) {
                assert_eq!(admitted.message().body.bytes, phase.input_bytes().unwrap());
                let sender = admitted.message().body.sender;
                let others = session.inputs.iter().filter(|one| one.body.sender != sender);
                let all = others.cloned().map(Admitted::from_store).chain([admitted]).collect();
                drop(phase.close(all).expect("enough sent").announcement().encode());
            }
        }
        Phase::CollectConsistency(phase) => {
            let Ok(mut one) = Consistency::decode(data) else { return };
            if resign && let Some(signer) = signer(session, one.sender) {
                let text = consistency_text(&one.sid, &session.delivery.dealers, &session.survivors.survivors);
                one.signature = signer.sign(&text).unwrap();
            }
            if let Ok(admitted) = phase.admit(one) {
                assert!(session.survivors.survivors.contains(admitted.message().sender));
                let all = session.signed.iter().cloned().map(Admitted::from_store).chain([admitted]).collect();
                assert!(phase.close(all).is_ok());
            }
        }
        Phase::CollectUnmasking(phase) => {
            let Some(answer) = signed(session, Unmasking::decode(data), resign) else { return };
            unmask(session, phase, answer);
        }
    }
}

fn unmask(session: &Session, phase: CollectUnmasking, answer: Unmasking) {
    let Ok(admitted) = phase.admit(answer) else { return };
    let sender = admitted.message().body.sender;
    let others = session.answers.iter().filter(|one| one.body.sender != sender);
    let all = [admitted].into_iter().chain(others.cloned().map(Admitted::from_store)).collect();
    // Four answers for t = 3: one bad share cannot be corrected, so the phase ends without a sum.
    if let Ok(unmasked) = phase.close(all) {
        assert_eq!(unmasked_sum(&session.world.config, &unmasked, &session.uploads), session.sum);
    }
}

/// An id's position in the roster, in the members' order.
fn place(session: &Session, id: &[u8]) -> u16 {
    let position = session.members.iter().position(|member| member.id == id).expect("a member");
    u16::try_from(position + 1).expect("a few members")
}

fn signer(session: &Session, index: u16) -> Option<&MemorySigner> {
    session.members.get(usize::from(index.checked_sub(1)?)).map(|member| &member.signer)
}

fn signed<B: InSession, E>(session: &Session, message: Result<Signed<B>, E>, resign: bool) -> Option<Signed<B>> {
    let message = message.ok()?;
    match signer(session, message.body.sender()).filter(|_| resign) {
        Some(signer) => Signed::sign(message.body, signer).ok(),
        None => Some(message),
    }
}

/// The honest message of each phase, unchanged and to be signed again.
pub fn seeds() -> Vec<Vec<u8>> {
    let session = five();
    let messages: [Vec<u8>; 6] = [
        session.adverts[1].encode(),
        session.dealt[&2].encode(),
        session.inputs[1].encode(),
        session.signed[1].encode(),
        session.answers[1].encode(),
        session.complaint.clone(),
    ];
    (0u8..)
        .zip(&messages)
        .flat_map(|(which, bytes)| [which, which | RESIGN].map(|which| [&[which], bytes.as_slice()].concat()))
        .collect()
}
