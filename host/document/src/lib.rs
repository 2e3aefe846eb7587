//! doc.
