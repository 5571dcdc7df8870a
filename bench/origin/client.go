package origin

import (
	"context"
	"net/rpc"
)

// service is what a client may call.
type service struct{ origin *Origin }

func (s *service) Load(id int, item *Item) (err error) {
	*item, err = s.origin.load(context.Background(), id)
	return err
}

func (s *service) Write(id int, item *Item) (err error) {
	*item, err = s.origin.Write(context.Background(), id)
	return err
}

// Client is a process's connection to the origin. It is safe for concurrent use.
type Client struct{ rpc *rpc.Client }

// Dial connects to an origin.
func Dial(addr string) (*Client, error) {
	client, err := rpc.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Client{client}, nil
}

// Close ends the connection. Queries that run go on at the origin.
func (c *Client) Close() error { return c.rpc.Close() }

// Load reads an item. A caller that leaves does not end the query, as with most databases.
func (c *Client) Load(ctx context.Context, id int) (Item, error) {
	return c.call(ctx, "Origin.Load", id)
}

// Write changes an item and returns what it is then.
func (c *Client) Write(ctx context.Context, id int) (Item, error) {
	return c.call(ctx, "Origin.Write", id)
}

func (c *Client) call(ctx context.Context, method string, id int) (Item, error) {
	var item Item
	call := c.rpc.Go(method, id, &item, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
		return item, call.Error
	case <-ctx.Done():
		return Item{}, context.Cause(ctx) // item is the call's until it is done
	}
}
