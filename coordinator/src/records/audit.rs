//! Converts rows of the audit log to contract types and back, and verifies them.

use store::entity::event::{AuditHead, EventFilter, NumberedEvent};
use store::{Store, StoreError};
use wire::audit::{ChainEnd, Entry, Finding, Head, Hex};

/// Rows read at once.
const PAGE: u32 = 1000;

/// The entry of a row.
pub(crate) fn entry(row: NumberedEvent) -> Entry {
    let NumberedEvent { position, event, hash } = row;
    Entry { position, event, hash }
}

/// The head in a row; `None` if its key or signature has a wrong length.
pub(crate) fn head(row: &AuditHead) -> Option<Head> {
    let (key, signature) = (row.public_key.as_slice().try_into().ok()?, row.signature.as_slice().try_into().ok()?);
    Some(Head { position: row.position, hash: row.hash, at: row.at, key: Hex(key), signature: Hex(signature) })
}

/// The row of a head.
pub(crate) fn row(head: &Head) -> AuditHead {
    let Head { position, hash, at, key, signature } = head;
    let (public_key, signature) = (key.0.to_vec(), signature.0.to_vec());
    AuditHead { position: *position, hash: *hash, at: *at, public_key, signature }
}

/// Outcome of a check of the log in a database.
pub(crate) struct Checked {
    /// Entries before the first invalid one.
    pub(crate) entries: u64,
    pub(crate) problem: Option<Finding>,
}

/// Follows the chain, and verifies it against every signed head.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn check(store: &Store) -> Result<Checked, StoreError> {
    let (mut end, mut heads) = (ChainEnd::default(), Heads { store, rows: Vec::new(), after: 0 });
    let mut signed = heads.next().await?;
    loop {
        let after = end.position;
        let page = store.read("check events", |tx| {
            Box::pin(async move { tx.events_after(after, &EventFilter::default(), PAGE).await })
        });
        let page = page.await?;
        if page.is_empty() {
            let problem = signed.map(|head| Finding::CutOff { entries: end.position, head: head.position });
            return Ok(Checked { entries: end.position, problem });
        }
        for row in page {
            end = match end.check(&entry(row)) {
                Ok(next) => next,
                Err(finding) => return Ok(Checked { entries: end.position, problem: Some(finding) }),
            };
            let Some(of_here) = signed.as_ref().filter(|head| head.position == end.position) else { continue };
            if let Some(finding) = contradiction(of_here, end) {
                return Ok(Checked { entries: end.position, problem: Some(finding) });
            }
            signed = heads.next().await?;
        }
    }
}

fn contradiction(row: &AuditHead, end: ChainEnd) -> Option<Finding> {
    match head(row) {
        Some(head) if head.is_signed() => (head.hash != end.hash).then_some(Finding::Rewritten(end.position)),
        Some(_) | None => Some(Finding::Signature(row.position)),
    }
}

/// The signed heads of a log, in order.
struct Heads<'s> {
    store: &'s Store,
    /// Read but not returned yet, in reverse order.
    rows: Vec<AuditHead>,
    after: u64,
}

impl Heads<'_> {
    async fn next(&mut self) -> Result<Option<AuditHead>, StoreError> {
        if self.rows.is_empty() {
            let after = self.after;
            let read = self.store.read("check heads", |tx| Box::pin(async move { tx.audit_heads(after, PAGE).await }));
            self.rows = read.await?;
            self.rows.reverse();
        }
        let next = self.rows.pop();
        self.after = next.as_ref().map_or(self.after, |head| head.position);
        Ok(next)
    }
}
