//! In place of `account` in builds without AWS: there never is one.

use kerf_stories::clouds::Cloud;
use std::sync::Arc;

use crate::checker::Instance;
use crate::plan::AccountFault;

#[derive(Debug)]
pub(super) enum Account {}

pub(super) fn begin(_: u64) -> (Arc<dyn Cloud>, Option<Account>) {
    panic!("plans for AWS are played by a build with the feature aws")
}

impl Account {
    pub(super) fn instances(&self) -> Vec<Instance> {
        match *self {}
    }

    pub(super) fn fail(&self, _: &str) {
        match *self {}
    }

    pub(super) fn meet(&mut self, _: &AccountFault) {
        match *self {}
    }

    pub(super) fn calm(&mut self) {
        match *self {}
    }
}
