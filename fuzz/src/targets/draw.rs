//! One honest draw of batches, recorded at every step. Created once, from a fixed seed.

use std::sync::OnceLock;

use secure_agg::batch::batch_id;
use secure_agg::batch::draw::{Drawn, Offer, Pool, Reveal, offer};
use secure_agg::codec::Message as _;

use super::support::{certificate_of, cohort, config, rng};

/// All messages of a draw dividing six participants into batches of three, and the stored bytes of participant 1.
pub(crate) struct Draw {
    pub(crate) offer: Offer,
    pub(crate) pool: Pool,
    pub(crate) reveal: Reveal,
    pub(crate) drawn: Drawn,
    /// An advertisement with a batch.
    pub(crate) advertise: Vec<u8>,
    pub(crate) offered: Vec<u8>,
    pub(crate) revealed: Vec<u8>,
    pub(crate) batch: Vec<u8>,
}

pub(crate) fn six() -> &'static Draw {
    static DRAW: OnceLock<Draw> = OnceLock::new();
    DRAW.get_or_init(draw)
}

fn draw() -> Draw {
    let ((mut world, mut members), mut rng, id) = (cohort(6, config(6, 4), 8), rng(9), [0xd7; 16]);
    let mut offers = Vec::new();
    for member in &members {
        offers.push(offer(id, 3, &member.id, &certificate_of(&member.id), &member.signer, &mut rng).unwrap());
    }
    let (first, offered) = (offers[0].message().clone(), offers[0].persist().expose().to_vec());
    let pool = Pool::fix(id, 3, offers.iter().map(|state| state.message().clone()).collect());
    let mut states = Vec::new();
    for state in offers {
        states.push(state.reveal(&pool, 6, &world.registry).unwrap());
    }
    let nonces: Vec<_> = states.iter().map(|state| state.message().nonce).collect();
    let drawn = Drawn { draw: id, nonces: nonces.into() };
    let batch = states[0].finish(&drawn).unwrap();
    members[0].batch = Some(batch_id(batch.members.iter().map(|id| id.as_slice())));
    Draw {
        offer: first,
        pool,
        reveal: states[0].message().clone(),
        drawn,
        advertise: members[0].advertise(&mut world).encode(),
        offered,
        revealed: states[0].persist().expose().to_vec(),
        batch: batch.to_bytes(),
    }
}
