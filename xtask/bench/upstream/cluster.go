package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
)

// knownCluster is Karpenter's cluster state and the client that it and the scheduler ask.
type knownCluster struct {
	state  *state.Cluster
	client client.Client
}

func newCluster(ctx context.Context, problem *Problem, instanceTypes []*cloudprovider.InstanceType) (*knownCluster, error) {
	provider := fake.NewCloudProvider()
	provider.InstanceTypes = instanceTypes
	kube := newIndexedClient(problem)
	cluster := state.NewCluster(clock.RealClock{}, kube, provider)
	for _, node := range problem.Nodes {
		claim := claimOf(node)
		settle(claim, node)
		cluster.UpdateNodeClaim(claim)
		if err := cluster.UpdateNode(ctx, node); err != nil {
			return nil, fmt.Errorf("adding node %s: %w", node.Name, err)
		}
	}
	for _, pods := range problem.Bound {
		for _, pod := range pods {
			if err := cluster.UpdatePod(ctx, pod); err != nil {
				return nil, fmt.Errorf("adding pod %s: %w", pod.Name, err)
			}
		}
	}
	return &knownCluster{state: cluster, client: kube}, nil
}

func claimOf(node *corev1.Node) *v1.NodeClaim {
	return &v1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels},
		Status: v1.NodeClaimStatus{
			NodeName:    node.Name,
			ProviderID:  node.Spec.ProviderID,
			Capacity:    node.Status.Capacity,
			Allocatable: node.Status.Allocatable,
		},
	}
}

// indexedClient answers for pods and nodes out of maps, with copies, as the cache of a real operator does. The fake client
// alone would walk all pods for each node.
type indexedClient struct {
	client.Client
	nodes map[string]*corev1.Node
	bound map[string][]*corev1.Pod
	pods  []*corev1.Pod
}

func newIndexedClient(problem *Problem) *indexedClient {
	indexed := &indexedClient{
		Client: fakeclient.NewFakeClient(),
		nodes:  map[string]*corev1.Node{},
		bound:  problem.Bound,
	}
	for _, node := range problem.Nodes {
		indexed.nodes[node.Name] = node
		indexed.pods = append(indexed.pods, problem.Bound[node.Name]...)
	}
	return indexed
}

func (c *indexedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	wanted, isNode := object.(*corev1.Node)
	if !isNode {
		return c.Client.Get(ctx, key, object, opts...)
	}
	node, found := c.nodes[key.Name]
	if !found {
		return apierrors.NewNotFound(corev1.Resource("nodes"), key.Name)
	}
	node.DeepCopyInto(wanted)
	return nil
}

func (c *indexedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	wanted, arePods := list.(*corev1.PodList)
	if !arePods {
		return c.Client.List(ctx, list, opts...)
	}
	var options client.ListOptions
	options.ApplyOptions(opts)
	pods := c.pods
	if options.FieldSelector != nil {
		node, found := options.FieldSelector.RequiresExactMatch("spec.nodeName")
		if !found {
			return fmt.Errorf("listing pods by %s: only spec.nodeName is indexed", options.FieldSelector)
		}
		pods = c.bound[node]
	}
	wanted.Items = nil
	for _, pod := range pods {
		inNamespace := options.Namespace == "" || options.Namespace == pod.Namespace
		if inNamespace && (options.LabelSelector == nil || options.LabelSelector.Matches(labels.Set(pod.Labels))) {
			wanted.Items = append(wanted.Items, *pod.DeepCopy())
		}
	}
	return nil
}
