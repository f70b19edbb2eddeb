//! What a pool may still launch.

use kerf_model::resources::NODES;
use kerf_model::{Pool, Quantity};

use crate::bits::Bits;
use crate::lanes::{self, LaneTable, Lanes};
use crate::refusal::{LimitReached, Usage};
use crate::template::Template;

#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// By lane.
    lanes: Vec<(usize, Level)>,
    nodes: Option<Level>,
    /// Rows within the limits, until something is taken from them.
    allowed: Option<Bits>,
}

/// How far one limit is used up.
#[derive(Clone, Copy, Debug)]
struct Level {
    limit: i64,
    /// May be overdrawn.
    left: i64,
    /// What the claims of this run have taken.
    planned: i64,
}

impl Limits {
    pub(crate) fn new(pool: &Pool, lanes: &LaneTable) -> Self {
        let (room, launching) = (lanes.room(&pool.limits), lanes.request(&pool.launching));
        let limited = pool.limits.names().filter(|name| *name != NODES);
        let level = |limit: i64, launching| Level {
            limit,
            left: limit.saturating_sub(launching),
            planned: 0,
        };
        let on_their_way = pool.launching.amount(NODES).whole_units();
        Self {
            lanes: limited
                .filter_map(|name| lanes.lane(name))
                .map(|lane| (lane, level(room[lane], launching[lane])))
                .collect(),
            nodes: pool.limits.get(NODES).map(|limit| level(limit.whole_units(), on_their_way)),
            allowed: None,
        }
    }

    pub(crate) fn take(&mut self, capacity: &[i64]) {
        for (lane, level) in &mut self.lanes {
            level.left = level.left.saturating_sub(capacity[*lane]);
        }
        self.take_node();
        self.allowed = None;
    }

    /// A node that is being deleted gives its resources back at once, but it is a node until it is gone, and
    /// `limits.nodes` is about how many there are.
    pub(crate) fn take_node(&mut self) {
        if let Some(nodes) = &mut self.nodes {
            nodes.left = nodes.left.saturating_sub(1);
        }
    }

    /// A node of the pool would go away. It stays a node while what replaces it starts.
    pub(crate) fn give_back(&mut self, capacity: &[i64]) {
        for (lane, level) in &mut self.lanes {
            level.left = level.left.saturating_add(capacity[*lane]);
        }
        self.allowed = None;
    }

    pub(crate) fn node_limit_reached(&self) -> bool {
        self.nodes.is_some_and(|nodes| nodes.left <= 0)
    }

    /// Usable rows whose type fits in what is left.
    pub(crate) fn allowed(&mut self, template: &Template) -> &Bits {
        self.allowed.get_or_insert_with(|| {
            let is_within = |capacity: &Lanes| {
                self.lanes.iter().all(|(lane, level)| capacity[*lane] <= level.left)
            };
            // While much is left, no row has to be looked at.
            if is_within(&template.largest) {
                return template.usable.clone();
            }
            let capacity =
                |row: usize| &template.capacity[template.rows[row].instance_type as usize];
            template.usable.iter().filter(|row| is_within(capacity(*row))).collect()
        })
    }

    /// A claim may become any of its types, so it is charged the most that any of them has.
    pub(crate) fn take_largest(&mut self, template: &Template, rows: &Bits) {
        if self.lanes.is_empty() && self.nodes.is_none() {
            return;
        }
        let mut largest: Lanes =
            smallvec::smallvec![0; template.capacity.first().map_or(0, smallvec::SmallVec::len)];
        for row in rows.iter() {
            let capacity = &template.capacity[template.rows[row].instance_type as usize];
            lanes::raise(&mut largest, capacity);
        }
        self.take(&largest);
        for (lane, level) in &mut self.lanes {
            level.planned = level.planned.saturating_add(largest[*lane]);
        }
        if let Some(nodes) = &mut self.nodes {
            nodes.planned += 1;
        }
    }

    /// How the limit of nodes stands, where it is reached.
    pub(crate) fn nodes_reached(&self) -> Option<Usage> {
        let nodes = self.nodes.filter(|_| self.node_limit_reached())?;
        Some(nodes.usage(Quantity::from_units))
    }

    /// The limits that keep these rows from being bought: those that all of them exceed, or where there is no such
    /// limit, those that any of them exceeds.
    pub(crate) fn reached(
        &self,
        template: &Template,
        rows: &Bits,
        lanes: &LaneTable,
    ) -> Vec<LimitReached> {
        let exceeded = self.lanes.iter().filter_map(|(lane, level)| {
            let amounts = rows
                .iter()
                .map(|row| template.capacity[template.rows[row].instance_type as usize][*lane]);
            let (over, within): (Vec<_>, Vec<_>) = amounts.partition(|amount| *amount > level.left);
            let (resource, needed) = lanes.named(*lane, over.into_iter().min()?)?;
            let usage = level.usage(|amount| {
                lanes.named(*lane, amount).map_or(Quantity::ZERO, |(_, amount)| amount)
            });
            let resource = resource.to_owned();
            Some((within.is_empty(), LimitReached { resource, usage, needed }))
        });
        let exceeded: Vec<_> = exceeded.collect();
        let by_all = exceeded.iter().any(|(by_all, _)| *by_all);
        exceeded.into_iter().filter(|(all, _)| *all == by_all).map(|(_, limit)| limit).collect()
    }
}

impl Level {
    fn usage(self, amount: impl Fn(i64) -> Quantity) -> Usage {
        let used = self.limit.saturating_sub(self.left).saturating_sub(self.planned);
        Usage { limit: amount(self.limit), used: amount(used), planned: amount(self.planned) }
    }
}
