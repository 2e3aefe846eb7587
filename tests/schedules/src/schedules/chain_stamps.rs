//! Stamps that are noted and forgotten while a view begins.

use std::sync::Arc;

use super::*;
use crate::{Schedules, join};
use shuttle::thread;

pub(crate) const ALL: Schedules =
    &[("a_view_takes_no_stamp_of_another_history", a_view_takes_no_stamp_of_another_history)];

fn a_view_takes_no_stamp_of_another_history() {
    let (stamps, chain, pods) = (Arc::new(ChainStamps::default()), ChainVersion::new(1, 1), GroupResource("pods"));
    stamps.note(chain, &pods, 7);
    let restored = thread::spawn({
        let (stamps, pods) = (stamps.clone(), pods.clone());
        move || {
            stamps.forget();
            stamps.note(chain, &pods, 3);
        }
    });
    let of_view = stamps.of_view(chain, &pods);
    assert!(matches!(of_view, None | Some(7)), "a stamp of another history: {of_view:?}");
    join([restored]);
    assert_eq!(stamps.of_view(chain, &pods), None);
}
