//! Checks an exported log line by line, without the coordinator.

use federation::time::Timestamp;

use super::entry::{ChainEnd, FORMAT, Head, Line};
use super::finding::Finding;
use super::hex::AuditKey;

/// Summary of a log without defects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub entries: u64,
    /// Time of the signed head that covers all entries.
    pub signed_at: Timestamp,
    pub key: AuditKey,
}

/// Verifies the lines of an export, in order.
#[derive(Debug)]
pub struct Verifier {
    /// The expected signing key, if known.
    key: Option<AuditKey>,
    /// A head that the auditor kept from an earlier export.
    kept: Option<Head>,
    lines: u64,
    header: Option<AuditKey>,
    end: ChainEnd,
    head: Option<Head>,
}

impl Verifier {
    /// Expects the log to be signed by `key` and to contain the entry of the head `kept`, where given. Without `key`, the verifier uses the
    /// key that the log itself names.
    ///
    /// # Errors
    /// [`Finding::Signature`] if the signature of `kept` is invalid.
    pub fn new(key: Option<AuditKey>, kept: Option<Head>) -> Result<Self, Finding> {
        if let Some(kept) = kept.as_ref().filter(|kept| !kept.is_signed()) {
            return Err(Finding::Signature(kept.position));
        }
        Ok(Self { key, kept, lines: 0, header: None, end: ChainEnd::default(), head: None })
    }

    /// Takes the next line, without its end.
    ///
    /// # Errors
    /// [`Finding`]: the first defect.
    pub fn line(&mut self, text: &str) -> Result<(), Finding> {
        self.lines += 1;
        let line = self.lines;
        let read: Line =
            serde_json::from_str(text).map_err(|error| Finding::Unreadable { line, problem: error.to_string() })?;
        // The hash must cover every character of the line.
        if read.text().trim_end() != text {
            return Err(match (read, self.header, &self.head) {
                // Identified by its position in the file, since its own fields may be the changed ones.
                (Line::Entry(_), Some(_), None) => Finding::Changed(self.end.position.saturating_add(1)),
                (Line::Entry(_) | Line::Header(_) | Line::Head(_), _, _) => {
                    Finding::Unreadable { line, problem: "it is not written as an export writes it".to_owned() }
                }
            });
        }
        match (read, self.header, &self.head) {
            (Line::Header(header), None, _) => {
                if header.format != FORMAT {
                    let problem = format!("it is of format {}, and this program reads format {FORMAT}", header.format);
                    return Err(Finding::Unreadable { line, problem });
                }
                self.must_be_known(header.key)?;
                self.header = Some(header.key);
            }
            (_, None, _) => return Err(Finding::Order { line, expected: "the header" }),
            (Line::Header(_), Some(_), _) => return Err(Finding::Order { line, expected: "an entry" }),
            (Line::Entry(_) | Line::Head(_), _, Some(head)) => {
                return Err(Finding::BeyondHead { head: head.position });
            }
            (Line::Entry(entry), Some(_), None) => {
                self.end = self.end.check(&entry)?;
                if let Some(kept) = &self.kept
                    && kept.position == self.end.position
                    && kept.hash != self.end.hash
                {
                    return Err(Finding::Rewritten(kept.position));
                }
            }
            (Line::Head(head), Some(key), None) => {
                if head.key != key {
                    return Err(Finding::OtherKey { expected: key, found: head.key });
                }
                if !head.is_signed() {
                    return Err(Finding::Signature(head.position));
                }
                if head.position > self.end.position {
                    return Err(Finding::CutOff { entries: self.end.position, head: head.position });
                }
                if head.position < self.end.position {
                    return Err(Finding::BeyondHead { head: head.position });
                }
                if head.hash != self.end.hash {
                    return Err(Finding::Rewritten(head.position));
                }
                self.head = Some(head);
            }
        }
        Ok(())
    }

    /// The verdict after the last line.
    ///
    /// # Errors
    /// [`Finding`]: the end is missing.
    pub fn finish(self) -> Result<Verified, Finding> {
        let entries = self.end.position;
        if let Some(kept) = self.kept.filter(|kept| kept.position > entries) {
            return Err(Finding::CutOff { entries, head: kept.position });
        }
        let head = self.head.ok_or(Finding::NoHead(entries))?;
        Ok(Verified { entries, signed_at: head.at, key: head.key })
    }

    fn must_be_known(&self, found: AuditKey) -> Result<(), Finding> {
        match self.key {
            Some(expected) if expected != found => Err(Finding::OtherKey { expected, found }),
            _ => Ok(()),
        }
    }
}
