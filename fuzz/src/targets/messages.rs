//! Every message decoder of the protocol; the second byte selects it. Decoding is canonical: encoding again gives the
//! same bytes.

use secure_agg::batch::draw::{Drawn, Offer, Pool, Reveal};
use secure_agg::codec::Message;
use secure_agg::messages::{
    Advertise, Agreement, Complaint, Consistency, Delivery, MaskedInput, Roster, ShareKeys, Survivors, Unmasking,
};

use super::draw::six;
use super::session::five;

pub fn run(data: &[u8]) {
    again::<Advertise>(data);
    again::<Roster>(data);
    again::<ShareKeys>(data);
    again::<Delivery>(data);
    again::<Complaint>(data);
    again::<MaskedInput>(data);
    again::<Survivors>(data);
    again::<Consistency>(data);
    again::<Agreement>(data);
    again::<Unmasking>(data);
    again::<Offer>(data);
    again::<Pool>(data);
    again::<Reveal>(data);
    again::<Drawn>(data);
}

fn again<M: Message>(data: &[u8]) {
    if let Ok(message) = M::decode(data) {
        assert_eq!(message.encode(), data, "a message has one encoding");
        assert!(data.len() <= M::MAX_BYTES && message.check().is_ok());
    }
}

/// One of each message.
pub fn seeds() -> Vec<Vec<u8>> {
    let session = five();
    vec![
        session.adverts[0].encode(),
        session.roster.encode(),
        session.dealt[&2].encode(),
        session.delivery.encode(),
        session.complaint.clone(),
        session.inputs[1].encode(),
        session.survivors.encode(),
        session.signed[1].encode(),
        session.agreement.encode(),
        session.answers[1].encode(),
        small_sparse(),
        six().offer.encode(),
        six().pool.encode(),
        six().reveal.encode(),
        six().drawn.encode(),
        six().advertise.clone(),
    ]
}

/// Survivors with a list of inputs, as in large cohorts only.
fn small_sparse() -> Vec<u8> {
    let mut survivors = five().survivors.clone();
    let inputs: Vec<_> = five().inputs.iter().map(secure_agg::messages::SurvivorInput::of).collect();
    survivors.inputs = inputs.into();
    survivors.encode()
}
