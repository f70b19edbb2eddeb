//! How the next node of a static pool can be replaced: beside it, or only when it has gone.

use std::{collections::BTreeSet, time::Duration};

use kerf_model::{Pool, ReservationId, Snapshot, Stock};

use super::{Held, full, headroom};
use crate::{
    blocked::Blocked,
    command::Candidate,
    terminate_first::{Because, GoesFirst, NotNow, goes_first, reservation},
};

/// What one static pool has for the replacements of its nodes.
#[derive(Clone, Debug)]
pub struct Staging {
    /// How many more can be launched beside what there is, or why none.
    room: Result<u64, Blocked>,
    /// What replacements can be launched from. Looked at only where nodes may go first.
    stock: Option<Stock>,
    terminate_first: bool,
    one_goes_first: bool,
}

impl Staging {
    /// `terminate_first`: whether a node may go before its replacement comes, where nothing can be launched beside it.
    pub fn of(snapshot: &Snapshot, pool: &Pool, terminate_first: bool) -> Self {
        let room = pool.static_pool.ok_or(Blocked::NotStatic);
        Self {
            room: room.and_then(|fixed| headroom(&fixed).map_err(Blocked::Static)),
            stock: terminate_first.then(|| Stock::of_template(pool, &snapshot.labels)),
            terminate_first,
            one_goes_first: false,
        }
    }

    /// How the node can be replaced: `None`, after its replacement has come. `policy`: how long its drain may take by the policy that
    /// repairs it.
    pub fn stage(
        &self,
        snapshot: &Snapshot,
        candidate: &Candidate,
        policy: Option<Duration>,
    ) -> Result<Option<GoesFirst>, Blocked> {
        let because = match (&self.stock, &self.room) {
            (_, Err(why)) if !is_at_limit(why) => return Err(why.clone()),
            (Some(Stock::Nothing), _) => return Err(Blocked::Static(Held::NoOffering)),
            (Some(Stock::Full { offered }), _) if !holds_one_of(offered, snapshot, candidate) => {
                let offered = offered.len();
                return Err(Blocked::Static(Held::ReservationsFull { offered }));
            }
            (Some(Stock::Full { .. }), _) => Because::NoReservedCapacity,
            // Others have taken the room in this pass: it is there again when they are done.
            (_, Ok(0)) => return Err(at_limit(snapshot, candidate)),
            (_, Ok(_)) => return Ok(None),
            (_, Err(why)) if !self.terminate_first => return Err(why.clone()),
            (_, Err(_)) => Because::StaticAtLimit,
        };
        if self.one_goes_first {
            return Err(Blocked::NotNow(NotNow::OneAtATime));
        }
        goes_first(snapshot, candidate, because, policy).map(Some)
    }

    /// Whether the node holds what its successor needs. Such nodes have their turn before others.
    pub fn holds_what_is_wanted(&self, snapshot: &Snapshot, candidate: &Candidate) -> bool {
        match &self.stock {
            Some(Stock::Full { offered }) => holds_one_of(offered, snapshot, candidate),
            _ => false,
        }
    }

    /// A node is replaced this way.
    pub fn use_up(&mut self, way: Option<GoesFirst>) {
        match way {
            Some(_) => self.one_goes_first = true,
            None => self.room = self.room.clone().map(|room| room.saturating_sub(1)),
        }
    }
}

fn holds_one_of(
    offered: &BTreeSet<ReservationId>,
    snapshot: &Snapshot,
    candidate: &Candidate,
) -> bool {
    reservation(snapshot, candidate).is_some_and(|held| offered.contains(&held))
}

fn is_at_limit(why: &Blocked) -> bool {
    matches!(why, Blocked::Static(Held::NoHeadroom { .. }))
}

fn at_limit(snapshot: &Snapshot, candidate: &Candidate) -> Blocked {
    let pool = snapshot.pools.get(&candidate.pool).and_then(|pool| pool.static_pool);
    pool.map_or(Blocked::NotStatic, |pool| Blocked::Static(full(&pool)))
}
