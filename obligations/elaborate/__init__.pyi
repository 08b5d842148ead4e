from . import file as file, net as net
