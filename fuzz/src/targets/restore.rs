//! Stored bytes: participants' snapshots, the coordinator's phases, states of draws and batches. Accepted bytes are stored again unchanged,
//! and their state can continue.

use secure_agg::batch::draw::{Batch, Drawing};
use secure_agg::client::Client;
use secure_agg::codec::Message as _;
use secure_agg::server::Phase;

use super::draw::six;
use super::session::five;

/// One input: the first byte selects the kind.
pub fn run(data: &[u8]) {
    let Some((which, data)) = data.split_first() else { return };
    if *which == 2 {
        drawing(data);
    } else if *which == 3 {
        if let Ok(batch) = Batch::from_bytes(data) {
            assert_eq!(batch.to_bytes(), data);
        }
    } else if which % 2 == 0 {
        client(data);
    } else if let Ok(phase) = Phase::restore(data) {
        let bytes = phase.encode();
        let again = Phase::restore(&bytes).expect("what was restored can be stored");
        assert_eq!(again.encode(), bytes);
        door(&phase);
    }
}

fn drawing(data: &[u8]) {
    let Ok(drawing) = Drawing::restore(data) else { return };
    assert_eq!(drawing.persist().expose(), data);
    match drawing {
        Drawing::Offered(state) => drop(state.reveal(&six().pool, 3, &five().world.registry)),
        Drawing::Revealed(state) => drop(state.finish(&six().drawn)),
    }
}

fn client(data: &[u8]) {
    let Ok(client) = Client::restore(data) else { return };
    assert!(!client.resend().is_empty() && !client.round().task_id.is_empty());
    let (session, signer) = (five(), &five().members[0].signer);
    // A state from untrusted bytes may refuse or accept the next message, but must not panic.
    match client {
        Client::ShareKeys(state) => {
            let (roster, mut rng) = (&session.roster, super::support::rng(1));
            drop(state.share_keys(roster, &roster.model_hash, 0, &session.world.registry, signer, &mut rng));
        }
        Client::MaskInput(state) => drop(state.receive(&session.delivery)),
        Client::CheckConsistency(state) => drop(state.check(&session.survivors, signer)),
        Client::Unmask(state) => drop(state.unmask(&session.agreement, signer)),
        Client::Answered(_) | Client::Complained(_) => {}
    }
}

fn door(phase: &Phase) {
    let session = five();
    match phase {
        Phase::CollectKeys(phase) => drop(phase.admit(session.adverts[0].clone(), &session.world.registry)),
        Phase::CollectShares(phase) => drop(phase.admit(session.dealt[&1].clone())),
        Phase::CollectMasked(phase) => {
            drop(phase.admit(session.inputs[0].clone()));
            drop(phase.delivery(1, |_| Some([7; 80])).map(|delivery| delivery.encode()));
        }
        Phase::CollectConsistency(phase) => {
            drop(phase.announcement().encode());
            drop(phase.admit(session.signed[0].clone()));
        }
        Phase::CollectUnmasking(phase) => drop(phase.admit(session.answers[0].clone())),
    }
}

/// Every state and every phase.
pub fn seeds() -> Vec<Vec<u8>> {
    let marked = |which: u8| move |bytes: &Vec<u8>| [&[which], bytes.as_slice()].concat();
    let session = five();
    let sessions = session.kept.iter().map(marked(0)).chain(session.phases.iter().map(marked(1)));
    let draws = [&six().offered, &six().revealed].into_iter().map(marked(2));
    sessions.chain(draws).chain([&six().batch].into_iter().map(marked(3))).collect()
}
