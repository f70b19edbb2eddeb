//! What a pool may still launch.

use kerf_model::resources::NODES;
use kerf_model::{Pool, Resources};

use crate::bits::Bits;
use crate::lanes::{LaneTable, Lanes};
use crate::template::Template;

#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// Lane and what is left of it; may be overdrawn.
    lanes: Vec<(usize, i64)>,
    nodes: Option<i64>,
    /// Rows within the limits, until something is taken from them.
    allowed: Option<Bits>,
}

impl Limits {
    pub(crate) fn new(pool: &Pool, lanes: &LaneTable) -> Self {
        let room = lanes.room(&pool.limits);
        let limited = pool.limits.names().filter(|name| *name != NODES);
        Self {
            lanes: limited
                .filter_map(|name| lanes.lane(name))
                .map(|lane| (lane, room[lane]))
                .collect(),
            nodes: pool.limits.get(NODES).map(kerf_model::Quantity::whole_units),
            allowed: None,
        }
    }

    pub(crate) fn take(&mut self, capacity: &[i64]) {
        for (lane, left) in &mut self.lanes {
            *left = left.saturating_sub(capacity[*lane]);
        }
        self.take_node();
        self.allowed = None;
    }

    /// A node that is on its way out gives its resources back at once, but it is a node until it is gone, and
    /// `limits.nodes` is about how many there are.
    pub(crate) fn take_node(&mut self) {
        if let Some(nodes) = &mut self.nodes {
            *nodes = nodes.saturating_sub(1);
        }
    }

    /// A node of the pool would go away. It stays a node while what replaces it starts.
    pub(crate) fn give_back(&mut self, capacity: &[i64]) {
        for (lane, left) in &mut self.lanes {
            *left = left.saturating_add(capacity[*lane]);
        }
        self.allowed = None;
    }

    pub(crate) fn node_limit_reached(&self) -> bool {
        self.nodes.is_some_and(|left| left <= 0)
    }

    /// Usable rows whose type fits in what is left.
    pub(crate) fn allowed(&mut self, template: &Template) -> &Bits {
        self.allowed.get_or_insert_with(|| {
            let mut rows = template.usable.clone();
            if !self.lanes.is_empty() {
                let within = |row: &usize| {
                    let capacity = &template.capacity[template.rows[*row].instance_type as usize];
                    self.lanes.iter().all(|(lane, left)| capacity[*lane] <= *left)
                };
                rows = rows.iter().filter(within).collect();
            }
            rows
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
            for (most, amount) in largest.iter_mut().zip(capacity) {
                *most = (*most).max(*amount);
            }
        }
        self.take(&largest);
    }

    pub(crate) fn left(&self, lanes: &LaneTable) -> Resources {
        let mut left = lanes.zero();
        for (lane, amount) in &self.lanes {
            left[*lane] = *amount;
        }
        lanes.resources(&left)
    }
}
